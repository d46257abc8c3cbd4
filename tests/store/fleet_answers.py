"""What each named query says of the invented fleet of fleet_seed: all of its rows, by the columns that matter."""

from typing import Any, Final

DAYS: Final = {"from": "2026-03-01", "to": "2026-03-02"}
DAY: Final = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
XID79: Final = "hardware/gpu_xid_79"

# Parameters, columns, rows.
ANSWERS: Final[dict[str, tuple[dict[str, str], str, list[tuple[Any, ...]]]]] = {
    "node_around_incident": (
        {"incident": "i1"},
        "after_s node what name detail",
        [
            (0, "n1", "event", "gpu.xid", "1 x gpu.xid 79"),
            (0, "n1", "incident", XID79, "i1, open: GPU 2 of n1 fell off the bus."),
            (0, "n1", "job", "job7 ends", "attempt 0, rank 0"),
            (0, "n1", "job", "job7 ends", "attempt 0, rank 1"),
            (0, "n1", "span", "busy ends", "n1"),
            (300, "n1", "span", "drain begins", "g1, ticket T-1"),
        ],
    ),
    "lines_around_incident": (
        {"incident": "i1", "seconds": "60"},
        "after_s node line_no body",
        [
            (-40, "n1", 202, "line 201 of n1"),
            (0, "n1", 203, "line 202 of n1"),
            (40, "n1", 204, "line 203 of n1"),
        ],
    ),
    "ranks_of_job": (
        {"job": "job7", "attempt": "0"},
        "at rank node name role",
        [
            ("2026-03-01 10:00:00.000000000", 2, "n2", "train.start", "context"),
            ("2026-03-01 10:59:00.000000000", None, "n2", "ib.link_down", "cause"),
            ("2026-03-01 11:00:00.000000000", 0, "n1", "gpu.xid", "cause"),
            ("2026-03-01 11:10:01.000000000", 1, "n1", "nccl.watchdog.timeout", "symptom"),
            ("2026-03-01 11:10:02.000000000", 2, "n2", "nccl.watchdog.timeout", "symptom"),
            ("2026-03-01 11:10:03.000000000", 3, "n2", "nccl.watchdog.timeout", "symptom"),
        ],
    ),
    "switch_around": (
        {"node": "n1", "at": "2026-03-01T11:00:00Z", "minutes": "5"},
        "after_s cluster node switch name",
        [(-60, "c1", "n2", "leaf1", "ib.link_down"), (0, "c1", "n1", None, "gpu.xid")],
    ),
    "gpu_life": (
        # Its failure on 2026-03-02 was corrected: it is none.
        {"gpu": "g2"},
        "at until what node detail",
        [
            ("2026-03-01 00:00:00.000000000", "2026-03-02 06:00:00.000000000", "installed", "n1",
             "{'sku':'h100','pci_bus_id':'0000:31:00.0'}"),
            ("2026-03-02 00:00:00.000000000", None, "errors", "n2", "gpu.xid 31: 1 episodes, 1 lines, driver 535"),
            ("2026-03-02 06:00:00.000000000", None, "installed", "n2", "{'sku':'h100','pci_bus_id':'0000:32:00.0'}"),
        ],
    ),
    "incidents_like": (
        {"incident": "i1"},
        "incident_id same_class same_node same_gpu steps_alike",
        [("i5", 1, 0, 0, 1), ("i3", 1, 0, 0, 1), ("i2", 0, 0, 0, 1), ("i7", 0, 0, 0, 1)],
    ),
    "symptom_storms": (
        DAY,
        "began_at name nodes ranks lines first_node incidents",
        [("2026-03-01 11:10:01.000000000", "nccl.watchdog.timeout", 2, 3, 3, "n1", [["i1", XID79]])],
    ),
    "good_and_bad_runs": (
        {"good": "job7/1", "bad": "job7/0"},
        "what value in_good in_bad",
        [
            ("error", "gpu.xid 79", 0, 1),
            ("error", "ib.link_down", 0, 1),
            ("error", "nccl.watchdog.timeout", 0, 3),
            ("node", "n1", 0, 1),
            ("node", "n3", 1, 0),
            ("node leaf_switch", "leaf2", 1, 0),
            ("node rack", "r-n1", 0, 1),
            ("node rack", "r-n3", 1, 0),
            ("node leaf_switch", "leaf1", 1, 2),
        ],
    ),
    # h100: 6 GPUs for 48 h less 1 h 55 min of g1, 6 h each of g3 and g4. a100: 2 GPUs for 48 h less 10 h of g7.
    "mtbf_by_cohort": (
        DAYS,
        "cohort n exposure units unit_hours mtbf_hours dispersion worst_unit_share unobserved_share",
        [
            ("h100", 2, "in_service", 6, 274.083, 137.04167, 0.76576, 0.5, 0.72229),
            ("a100", 1, "in_service", 2, 86, 86, 1.26316, 1, 1),
        ],
    ),
    "mtbf_by_class": (
        DAYS,
        "category component class n units_with_it units unit_hours mtbf_hours mtbf_lo_hours mtbf_hi_hours "
        "dispersion worst_unit_share share_of_category",
        [
            ("infrastructure", "GPU", XID79, 2, 2, 8, 360.083, 180.04167, 49.84068, 1486.66201, 0.80825, 0.5, 0.5),
            ("infrastructure", "GPU memory", "hardware/gpu_ecc_uncorrectable", 1, 1, 8, 360.083, 360.08333, 64.62785,
             14222.53196, 1.21084, 1, 0.25),
            ("infrastructure", "host", "hardware/host_memory", 1, 0, 8, 360.083, 360.08333, 64.62785, 14222.53196, None,
             None, 0.25),
        ],
    ),
    "data_quality": (
        DAYS,
        "kind cluster unit source row days first_day last_day",
        [
            ("failure_in_repair", "c1", "g3", "incidents", 0, 1, "2026-03-02", "2026-03-02"),
            ("inverted_span", "c1", "n3", "fleet.csv", 22, 1, "2026-03-01", "2026-03-01"),
        ],
    ),
    "repairs": (
        {},
        "unit action ended_at ticket to_drain_hours to_repair_hours again_7_days again_28_days",
        [
            ("g7", "swap", None, "T-3", None, 5, None, None),
            ("g1", "reset", "2026-03-01 13:00:00.000000000", "T-1", 0.08333, 1, 0, 0),
        ],
    ),
    "restatements": (
        {"as_of": "2026-03-03 12:00:00"},
        "cluster day what old new why",
        [
            ("c1", "2026-03-02", "failures, infrastructure", 2, 1, ["correction"]),
        ],
    ),
    "xid_by_sku_and_driver": (
        DAYS,
        "sku driver xid episodes lines gpus_with_it top_share gpus per_gpu_year",
        [
            ("h100", "535", 31, 2, 2, 2, 0.5, 6, 66.89475),
            ("h100", "550", 31, 1, 1, 1, 1, 1, 730.5),
            ("h100", "535", 79, 1, 1, 1, 1, 6, 33.44738),
            ("a100", "535", 94, 1, 4, 1, 1, 2, 101.93023),
        ],
    ),
    "garwood": (
        {"n": "148", "exposure": "21233664"},
        "n lo hi mtbf mtbf_lo mtbf_hi",
        [(148, 125.11682, 173.85704, 143470.7027, 122132.90039, 169710.71162)],
    ),
    "first_events_of_job": (
        {"job": "job7", "role": "cause"},
        "at node name attempt",
        [
            ("2026-03-01 10:59:00.000000000", "n2", "ib.link_down", 0),
            ("2026-03-01 11:00:00.000000000", "n1", "gpu.xid", 0),
        ],
    ),
    "node_around": (
        {"node": "n2", "at": "2026-03-01T11:00:00Z", "minutes": "2"},
        "at name",
        [("2026-03-01 10:59:00.000000000", "ib.link_down")],
    ),
    "raw_lines_around": (
        {"node": "n1", "source": "kern.log", "line_no": "203", "lines": "1"},
        "here line_no Body",
        [(0, 202, "line 201 of n1"), (1, 203, "line 202 of n1"), (0, 204, "line 203 of n1")],
    ),
    "silent_nodes": (
        {},
        "problem reporter since",
        [
            ("silent", "n1", "2026-03-01 10:00:00.000"),
            ("silent", "n3", "2026-03-01 10:00:00.001"),
        ],
    ),
    "dead_letters_by_reason": ({}, "topic messages", [("raw", 1)]),
    "evidence_latency": (
        {},
        "class incidents p50_s longest_s",
        [
            (XID79, 3, 4, 8),
            ("hardware/gpu_ecc_uncorrectable", 1, 4, 4),
            ("hardware/thermal", 1, 4, 4),
            ("network/ib_link_flap", 1, 4, 4),
            ("software/python_exception", 1, 4, 4),
        ],
    ),
    # The event of a node with two jobs is one row.
    "xid_by_node": (
        {},
        "node xid lines events",
        [("m1", 94, 4, 4), ("n1", 31, 2, 2), ("n1", 79, 1, 1), ("n2", 31, 1, 1)],
    ),
}  # fmt: skip
