from pipeline.report.lanes import MAX_LANES, Lane, lanes_of
from schemas.records import BlastRadius, ChainStep, Culprit, Incident
from tests.report.drawn import incident, step


def lanes(*steps: ChainStep, **more: object) -> list[Lane]:
    return of(incident(*steps, **more))  # type: ignore[arg-type]


def of(found: Incident) -> list[Lane]:
    return lanes_of(found, found.chain)


def test_steps_of_one_rank_share_a_lane_however_much_of_the_place_they_name() -> None:
    found = lanes(
        step(1, "GPU 0000:5e:00.0 on n1"),
        step(2, "rank 6 GPU 0000:5e:00.0 on n1"),
        step(3, "rank 6 on n1"),
        step(4, "rank 6"),
    )

    assert [(lane.who, lane.node, lane.detail, lane.steps) for lane in found] == [
        ("rank 6", "n1", "GPU 0000:5e:00.0", (1, 2, 3, 4))
    ]


def test_ranks_that_share_an_adapter_keep_lanes_of_their_own() -> None:
    found = lanes(step(1, "mlx5_3 on n1"), step(2, "rank 4 mlx5_3 on n1"), step(3, "rank 5 mlx5_3 on n1"))

    assert [lane.who for lane in found] == ["mlx5_3", "rank 4", "rank 5"]


def test_the_same_device_on_another_node_is_another_lane() -> None:
    assert len(lanes(step(1, "GPU 0000:5e:00.0 on n1"), step(2, "GPU 0000:5e:00.0 on n2"))) == 2


def test_the_root_is_on_top_its_node_beside_it_many_ranks_and_the_job_below() -> None:
    found = lanes(
        step(1, "rank 6 on n1"), step(2, "job"), step(3, "3 ranks", ranks=[1, 2, 3]), step(4, "rank 9 on n2"),
        step(5, "on n1"), step(6, "2 ranks", ranks=[3, 4]),
    )  # fmt: skip

    assert [(lane.who, lane.steps) for lane in found] == [
        ("rank 6", (1,)), ("n1", (5,)), ("rank 9", (4,)), ("4 ranks", (3, 6)), ("job", (2,)),
    ]  # fmt: skip
    assert found[3].detail == "ranks 1-4"


def test_what_came_before_on_another_node_stays_below_the_root() -> None:
    found = lanes(
        step(1, "rank 9 on n2", role="context"), step(2, "rank 4 on n1", role="context"),
        step(3, "mlx5_0 on n1", role="root"), step(4, "rank 2 on n2", role="symptom"),
    )  # fmt: skip

    assert [lane.who for lane in found] == ["mlx5_0", "rank 4", "rank 9", "rank 2"]


def test_ranks_that_are_not_all_named_are_still_counted() -> None:
    (lane,) = lanes(step(1, "1023 ranks", ranks=list(range(64))))

    assert (lane.who, lane.detail) == ("1,023 ranks", "ranks 0-63 …")


def test_the_culprits_own_lane_is_marked_and_its_nodes_only_where_it_has_none() -> None:
    gpu = [Culprit(node="n1", pci_bus_id="0000:5e:00.0")]
    own = lanes(step(1, "GPU 0000:5e:00.0 on n1"), step(2, "on n1"), step(3, "GPU 0000:5e:00.0 on n2"), culprits=gpu)
    node = lanes(step(1, "on n1"), step(2, "rank 3 on n1"), step(3, "on n2"), culprits=gpu)

    assert [lane.culprit for lane in own] == [True, False, False]
    assert [lane.culprit for lane in node] == [True, False, False]


def test_a_link_has_no_lane_so_no_lane_is_accused() -> None:
    assert not any(lane.culprit for lane in lanes(step(1, "rank 3 on n1"), culprits=[Culprit(link="a <-> b")]))


def test_a_silent_rank_has_a_lane_though_it_printed_nothing() -> None:
    found = lanes(
        step(1, "7 ranks", ranks=[0, 1, 2], role="symptom"),
        culprits=[Culprit(rank=5, node="n2")],
        blast_radius=BlastRadius(silent_ranks=[5]),
    )

    assert found[0] == Lane(who="rank 5", node="n2", culprit=True, silent=True)


def test_a_silent_rank_that_left_a_line_keeps_its_lane() -> None:
    found = lanes(step(1, "rank 5 on n2"), blast_radius=BlastRadius(silent_ranks=[5]))

    assert [(lane.who, lane.silent, lane.steps) for lane in found] == [("rank 5", True, (1,))]


def test_many_silent_ranks_are_one_lane() -> None:
    found = lanes(step(1, "rank 0 on n1"), blast_radius=BlastRadius(silent_ranks=list(range(1, 9_000))))

    assert [lane.who for lane in found] == ["rank 0", "8,999 silent ranks"]


def test_the_least_telling_lanes_are_folded_and_no_step_is_lost() -> None:
    roles = ["root", *["context"] * 10, *["symptom"] * 14, *["cascade"] * 5]
    steps = [step(n, f"rank {n} on n{n}", role=role) for n, role in enumerate(roles, 1)]
    found = lanes(*steps)

    assert len(found) == MAX_LANES
    assert found[-1].who == f"{30 - MAX_LANES + 1} more places"
    assert {"rank 1", "rank 26", "rank 30"} <= {lane.who for lane in found}
    assert sorted(n for lane in found for n in lane.steps) == list(range(1, 31))


def test_a_place_in_unknown_words_is_a_lane_as_it_stands() -> None:
    assert [(lane.who, lane.detail) for lane in lanes(step(1, "switch leaf-3 port 7"))] == [
        ("switch leaf-3 port 7", "")
    ]
