"""What a gang without a seat is told to change can be changed on its pods, and then it has one."""

import json
import re

import pytest
from tests.controller.kube.clusterlike import Desk, Server, whole

from rackyard.fabric import simulate

SITE = simulate(2, 4)
"""Two racks of four trays."""


@pytest.mark.parametrize(
    ("pods", "request_", "fix"),
    [
        (9, {}, "8 pods is the most that fits now"),
        (6, {"segment_gpus": 24}, '`"segment_gpus": 12` in annotation rackyard.io/request fits now'),
        (9, {"segment_gpus": 16}, "fix: 8 pods"),
        (4, {"spread": 5}, '`"spread": 2` in annotation rackyard.io/request fits now'),
        (2, {"nic_gbps": 1600}, '`"nic_gbps": 800` in annotation rackyard.io/request fits now'),
    ],
)
def test_the_fix_is_one_that_the_pods_can_say(pods: int, request_: dict[str, object], fix: str) -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", pods, json.dumps(request_))
    desk.settle()
    said = desk.server.condition("a-0")
    assert said["reason"] == "NoSeat" and fix in said["message"], said["message"]
    found = re.search(r'`("[^`]*)` in annotation rackyard.io/request', said["message"])
    count = re.search(r"(\d+) pods", said["message"])
    changed = request_ | (json.loads("{" + found[1] + "}") if found else {})
    if found or count:
        desk = Desk(Server(SITE))
        desk.server.add("a", int(count[1]) if count else pods, json.dumps(changed))
        desk.settle()
        assert whole(desk.server, "a")


def test_names_that_the_site_has_not_are_said() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2, '{"exclude": ["r1-t01"]}')
    desk.settle()
    said = desk.server.condition("a-0")
    assert said["reason"] == "BadRequest" and "did you mean r01-t01" in said["message"]


def test_where_no_number_of_pods_would_do_it_is_said_in_general() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 9, '{"segment_gpus": 3}')
    desk.settle()
    message = desk.server.condition("a-0")["message"]
    assert "gpus: 3" not in message and "annotation rackyard.io/request" in message
