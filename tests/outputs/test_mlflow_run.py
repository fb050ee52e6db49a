"""What only a real MLflow server shows; ``test_trackers.py`` of each framework has the rest."""

from energy_callbacks.outputs.mlflow_run import MlflowRun


def test_a_resumed_run_keeps_its_parameters(mlflow_uri: str) -> None:
    """MLflow refuses another value; new parameters are added."""
    from mlflow import MlflowClient

    client = MlflowClient(mlflow_uri)
    run_id = client.create_run("0").info.run_id
    MlflowRun(client, run_id).begin({"batch_size": 4}, "")
    MlflowRun(client, run_id).begin({"batch_size": 8, "device": "a GPU"}, "")
    assert client.get_run(run_id).data.params == {
        "energy_callbacks/batch_size": "4",
        "energy_callbacks/device": "a GPU",
    }


def test_a_description_of_the_user_stays(mlflow_uri: str) -> None:
    """A run without one gets the energy."""
    from mlflow import MlflowClient

    client, key = MlflowClient(mlflow_uri), "mlflow.note.content"
    users, ours = (
        client.create_run("0", tags=tags).info.run_id for tags in ({key: "my notes"}, {})
    )
    for run_id in (users, ours):
        MlflowRun(client, run_id).report({"final/total_wh": 12.3}, [])
    assert client.get_run(users).data.tags[key] == "my notes"
    assert client.get_run(ours).data.tags[key].startswith("Energy: 12.3 Wh.")
