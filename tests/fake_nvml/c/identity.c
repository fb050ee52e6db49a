/* What a card is, who uses it, and how it does: everything but power and energy. */
#include "api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetName(void *handle, char *name, unsigned size)
{
    Call call;
    TRY(enter_any(handle, G_IDENTITY, &call));
    return put_text(name, size, call.mig ? call.mig->name : call.card->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size)
{
    Call call;
    TRY(enter_any(handle, G_IDENTITY, &call));
    return put_text(uuid, size, call.mig ? call.mig->uuid : call.card->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *info)
{
    Call call;
    NEED(info);
    TRY(enter_any(handle, G_IDENTITY, &call));
    memset(info, 0, sizeof *info);
    sscanf(call.card->pci_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus,
             info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0",
             info->domain & 0xFFFF, info->bus & 0xFF, info->device & 0xFF);
    return SUCCESS;
}

/* Simple numbers of a card: a name, the group that it costs, the type, and the expression. */
#define CARD_NUMBER(function, group, type, expression)                   \
    EXPORT nvmlReturn_t function(void *handle, type *value)              \
    {                                                                    \
        Call call;                                                       \
        NEED(value);                                                     \
        TRY(enter(handle, group, &call));                                \
        *value = (type)(expression);                                     \
        return SUCCESS;                                                  \
    }

CARD_NUMBER(nvmlDeviceGetIndex, G_IDENTITY, unsigned, index_of(call.card))
CARD_NUMBER(nvmlDeviceGetMinorNumber, G_IDENTITY, unsigned, call.card->index)
CARD_NUMBER(nvmlDeviceGetArchitecture, G_IDENTITY, unsigned, call.card->architecture)
CARD_NUMBER(nvmlDeviceGetPersistenceMode, G_IDENTITY, unsigned, 1)
CARD_NUMBER(nvmlDeviceGetComputeMode, G_IDENTITY, unsigned, 0)

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    Call call;
    NEED(major && minor);
    TRY(enter_any(handle, G_IDENTITY, &call));
    *major = (int)call.card->capability_major;
    *minor = (int)call.card->capability_minor;
    return SUCCESS;
}

/* ---- memory and processes */
static double quantity(const Call *call, Quantity which)
{
    return fmax(signal_power(&call->card->signals[which], (double)call->t_ns * 1e-9), 0.0);
}

static nvmlReturn_t read_memory(void *handle, Memory *memory)
{
    Call call;
    TRY(enter_any(handle, G_MEMORY, &call));
    double total = call.mig ? call.mig->memory_total : call.card->memory_total_bytes;
    double used = call.mig ? call.mig->memory_used : quantity(&call, Q_MEMORY_USED);
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)fmin(used, total);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(void *handle, Memory *memory)
{
    NEED(memory);
    return read_memory(handle, memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory)
{
    Memory plain;
    NEED(memory);
    if (memory->version != 0x02000028)
        return ARGUMENT_VERSION_MISMATCH;
    TRY(read_memory(handle, &plain));
    memory->total = plain.total, memory->free = plain.free, memory->used = plain.used;
    memory->reserved = 0;
    return SUCCESS;
}

static nvmlReturn_t list_processes(void *handle, ProcessKind kind, unsigned *count,
                                   ProcessInfo *list)
{
    Call call;
    unsigned found = 0, space = list ? *count : 0;
    TRY(enter_any(handle, G_PROCESSES, &call));
    for (size_t i = 0; i < call.card->n_processes; i++) {
        const RunningProcess *process = &call.card->processes[i];
        bool inside = !call.mig || process->gpu_instance == (unsigned)call.mig->gpu_instance;
        bool runs = process->start_ns <= call.t_ns && call.t_ns < process->end_ns;
        if (process->kind != kind || !inside || !runs)
            continue;
        if (found < space)
            list[found] = (ProcessInfo){process->pid, process->used_bytes, process->gpu_instance,
                                        process->compute_instance};
        found++;
    }
    *count = found;
    return found > space ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESS_LIST(function, kind)                                                       \
    EXPORT nvmlReturn_t function(void *handle, unsigned *count, ProcessInfo *list)         \
    {                                                                                      \
        NEED(count);                                                                       \
        return list_processes(handle, kind, count, list);                                  \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, P_COMPUTE)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, P_GRAPHICS)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, P_MPS)

/* ---- utilisation, temperature, clocks */
typedef struct {
    unsigned gpu, memory;
} Utilization;

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates)
{
    Call call;
    NEED(rates);
    TRY(enter(handle, G_LIGHT, &call));
    if (call.card->mig_mode > 0)
        return NOT_SUPPORTED; /* "not supported on MIG-enabled GPUs" (NVML reference) */
    rates->gpu = (unsigned)quantity(&call, Q_UTILISATION);
    rates->memory = (unsigned)quantity(&call, Q_MEMORY_UTILISATION);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius)
{
    Call call;
    NEED(celsius && sensor == 0);
    TRY(enter(handle, G_LIGHT, &call));
    *celsius = (unsigned)quantity(&call, Q_TEMPERATURE);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(void *handle, TemperatureV1 *temperature)
{
    unsigned celsius;
    NEED(temperature);
    if (temperature->version != 0x100000C)
        return ARGUMENT_VERSION_MISMATCH;
    TRY(nvmlDeviceGetTemperature(handle, temperature->sensor, &celsius));
    temperature->celsius = (int)celsius;
    return SUCCESS;
}

enum { CLOCK_MEMORY = 2, CLOCK_TYPES = 4 };

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz)
{
    Call call;
    NEED(mhz && type < CLOCK_TYPES);
    TRY(enter(handle, G_LIGHT, &call));
    Segment at = segment_at(call.card, call.t_ns);
    double memory_mhz = at.memory_clock_mhz > 0.0 ? at.memory_clock_mhz
                                                  : call.card->memory_clock_mhz;
    double free_mhz = call.card->busy_w > 0.0 ? call.card->max_sm_clock_mhz
                                              : quantity(&call, Q_SM_CLOCK);
    double sm_mhz = fmin(free_mhz, call.card->max_sm_clock_mhz * relative_clock(call.card, &at));
    *mhz = (unsigned)lround(type == CLOCK_MEMORY ? memory_mhz : sm_mhz);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(void *handle, unsigned type, unsigned *mhz)
{
    Call call;
    NEED(mhz && type < CLOCK_TYPES);
    TRY(enter(handle, G_LIGHT, &call));
    bool memory = type == CLOCK_MEMORY;
    *mhz = (unsigned)(memory ? call.card->memory_clock_mhz : call.card->max_sm_clock_mhz);
    return SUCCESS;
}

static nvmlReturn_t put_size(void *handle, size_t offset, unsigned *size)
{
    Call call;
    NEED(size);
    TRY(enter(handle, G_LIGHT, &call));
    *size = (unsigned)*(const double *)((const char *)call.card + offset);
    return *size ? SUCCESS : NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(void *handle, unsigned *cores)
{
    return put_size(handle, offsetof(Card, cores), cores);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryBusWidth(void *handle, unsigned *bits)
{
    return put_size(handle, offsetof(Card, memory_bus_bits), bits);
}

static nvmlReturn_t put_clocks(unsigned *count, unsigned *clocks_mhz, double highest_mhz,
                               double lowest_mhz, double step_mhz)
{
    unsigned found = 1 + (unsigned)((highest_mhz - lowest_mhz) / step_mhz + 1e-9);
    bool fits = clocks_mhz && *count >= found;
    *count = found;
    for (unsigned i = 0; fits && i < found; i++)
        clocks_mhz[i] = (unsigned)lround(highest_mhz - i * step_mhz);
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(void *handle, unsigned *count,
                                                       unsigned *clocks_mhz)
{
    Call call;
    NEED(count);
    TRY(enter(handle, G_LIGHT, &call));
    double high = call.card->memory_clock_mhz, low = call.card->low_memory_clock_mhz;
    return put_clocks(count, clocks_mhz, high, low > 0.0 ? low : high, low > 0.0 ? high - low : 1.0);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(void *handle, unsigned memory_mhz,
                                                         unsigned *count, unsigned *clocks_mhz)
{
    Call call;
    NEED(count);
    TRY(enter(handle, G_LIGHT, &call));
    const Card *card = call.card;
    if (memory_mhz != card->memory_clock_mhz && memory_mhz != card->low_memory_clock_mhz)
        return NOT_FOUND;
    return put_clocks(count, clocks_mhz, card->max_sm_clock_mhz, card->min_sm_clock_mhz,
                      card->clock_step_mhz);
}

enum { REASON_GPU_IDLE = 0x1, REASON_SW_POWER_CAP = 0x4, REASON_SW_THERMAL = 0x20 };

static unsigned long long reasons(const Call *call)
{
    unsigned long long bits = 0;
    if (quantity(call, Q_UTILISATION) < 1.0)
        bits |= REASON_GPU_IDLE;
    Segment at = segment_at(call->card, call->t_ns);
    if (quantity(call, Q_POWER_THROTTLE) > 0.0 || is_limited(call->card, &at))
        bits |= REASON_SW_POWER_CAP;
    if (quantity(call, Q_THERMAL_THROTTLE) > 0.0)
        bits |= REASON_SW_THERMAL;
    return bits;
}

CARD_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, G_LIGHT, unsigned long long, reasons(&call))
CARD_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, G_LIGHT, unsigned long long, reasons(&call))
CARD_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, G_LIGHT, unsigned long long,
            REASON_GPU_IDLE | REASON_SW_POWER_CAP | REASON_SW_THERMAL)
