-- question: Which repairs were made, what came of them, and did the unit fail again within 7 or 28 days? Open ones first.
-- question: To drain, to repair: hours from the failure before it (of the last 28 days) to the drain and to the repair's
-- question: begin; empty: none of the unit (of a node: or of its GPUs) is known. Down: from the drain, else the begin,
-- question: to the end or until now.
-- param unit:String = | only this GPU or node
-- param cluster:String = | only this cluster
-- param open:UInt8 = 0 | 1: only those that have not ended
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 1000 | how many
-- example: rootrank query repairs --param open=1
WITH
    failures AS
    (
        SELECT run, run_id, cluster, failed_unit AS unit, groupArray(failure_days.at) AS failed
        FROM failure_days
        ARRAY JOIN arrayDistinct([failure_days.unit, node]) AS failed_unit
        WHERE run = {run:String} AND failed_unit != ''
        GROUP BY run, run_id, cluster, failed_unit
    ),
    drains AS
    (
        SELECT run, run_id, cluster, unit, groupArray((started_at, ended_at)) AS drained
        FROM fleet_spans
        WHERE run = {run:String} AND kind = 'drain'
        GROUP BY run, run_id, cluster, unit
    )
SELECT
    r.cluster AS cluster, r.unit_kind AS unit_kind, r.unit AS unit, r.node AS node, r.started_at AS begun_at,
    r.ended_at AS ended_at, r.action AS action, r.outcome AS outcome, r.ticket AS ticket,
    arrayReduce('maxOrNull', arrayFilter(t -> t <= r.started_at AND t > r.started_at - toIntervalDay(28), f.failed))
        AS failed_at,
    arrayReduce('minOrNull', arrayMap(d -> d.1, arrayFilter(d -> d.1 <= r.started_at
        AND (d.2 IS NULL OR d.2 >= r.started_at), d.drained))) AS drained_at,
    (toUnixTimestamp64Nano(drained_at) - toUnixTimestamp64Nano(failed_at)) / 3.6e12 AS to_drain_hours,
    (toUnixTimestamp64Nano(r.started_at) - toUnixTimestamp64Nano(failed_at)) / 3.6e12 AS to_repair_hours,
    round((toUnixTimestamp64Nano(ifNull(r.ended_at, now64(9))) - toUnixTimestamp64Nano(ifNull(drained_at, r.started_at)))
        / 3.6e12, 3) AS down_hours,
    if(r.ended_at IS NULL, NULL, arrayCount(t -> t >= r.ended_at AND t < r.ended_at + toIntervalDay(7), f.failed))
        AS again_7_days,
    if(r.ended_at IS NULL, NULL, arrayCount(t -> t >= r.ended_at AND t < r.ended_at + toIntervalDay(28), f.failed))
        AS again_28_days,
    r.source AS source, r.row AS row
FROM fleet_spans AS r
LEFT JOIN failures AS f ON r.run = f.run AND r.run_id = f.run_id AND r.cluster = f.cluster AND r.unit = f.unit
LEFT JOIN drains AS d ON r.run = d.run AND r.run_id = d.run_id AND r.cluster = d.cluster AND r.unit = d.unit
WHERE r.run = {run:String} AND r.kind IN ('repair', 'reset') AND ({unit:String} = '' OR r.unit = {unit:String})
    AND ({cluster:String} = '' OR r.cluster = {cluster:String}) AND ({open:UInt8} = 0 OR r.ended_at IS NULL)
ORDER BY r.ended_at IS NULL DESC, begun_at DESC, cluster, unit
LIMIT {limit:UInt32}
SETTINGS join_use_nulls = 0
