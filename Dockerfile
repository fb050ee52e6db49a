# The command energy-callbacks, to measure a machine or to make reports:
#   docker build --tag energy-callbacks .
#   docker run --rm --gpus all energy-callbacks doctor
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" energy-callbacks report energy_runs
# To measure a command inside a container, install the package in the image of that command.

FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/energy-callbacks \
    && /opt/energy-callbacks/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.12-slim-bookworm
COPY --from=build /opt/energy-callbacks /opt/energy-callbacks
# The container runtime mounts NVML for "utility". Matplotlib keeps its list of fonts in a folder
# that any user can write to.
ENV PATH=/opt/energy-callbacks/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    MPLCONFIGDIR=/tmp/matplotlib
RUN useradd --create-home --uid 1000 energy && mkdir /work && chown energy:energy /work
USER 1000
WORKDIR /work
ENTRYPOINT ["energy-callbacks"]
CMD ["doctor"]
