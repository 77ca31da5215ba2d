"""What a restarted executable gets: what it could load again, and statuses that fit."""

from __future__ import annotations

import threading

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.desired_state import DesiredState, Loaded
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.wire.status import Code, RequestError

AVAILABLE, LOADING = ModelVersionStatus.AVAILABLE, ModelVersionStatus.LOADING


def test_a_lost_version_is_not_available_in_the_new_process() -> None:
    state = DesiredState(threading.Condition(), LoadLimits())
    lost = threading.Event()
    for number in (1, 2):
        state.servables[number] = Loaded(
            control_pb2.LoadRequest(servable=number), lambda _: lost.set()
        )
    model = state.routes.models.add(name="half")
    model.versions.add(version=7, servable=1)
    model.versions.add(version=8, servable=2)
    statuses = state.statuses.models.add(name="half").versions.model_version_status
    for version in (8, 7):
        statuses.add(version=version, state=AVAILABLE)
    asked: list[control_pb2.Request] = []

    def ask(request: control_pb2.Request) -> control_pb2.Reply:
        if request.load.servable == 2:
            raise RequestError(Code.NOT_FOUND, "its files are gone")
        asked.append(request)
        return control_pb2.Reply()

    state.restore(ask)

    assert lost.wait(60)
    (sent,) = (each.set_statuses for each in asked if each.HasField("set_statuses"))
    (versions,) = (each.versions.model_version_status for each in sent.models)
    assert {each.version: each.state for each in versions} == {7: AVAILABLE, 8: LOADING}
    (routes,) = (each.set_routes for each in asked if each.HasField("set_routes"))
    assert [each.version for each in routes.models[0].versions] == [7]
