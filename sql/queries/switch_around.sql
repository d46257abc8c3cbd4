-- question: What else happened on this switch around a moment: events of the nodes that hang on it, and events that name it?
-- question: Which nodes hang there is told by topology (the fact leaf_switch of spans).
-- param switch:String = | the leaf switch; empty: that of the node
-- param node:String = | a node on it
-- param at:String | the moment, such as 2026-03-01T10:05:42Z
-- param minutes:UInt32 = 10 | how far to look, both ways
-- param role:String = | cause, intermediate, symptom, context or noise; empty: all but noise
-- param late_days:UInt16 = 2 | find lines that were read up to so many days late; more reads more
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 2000 | how many
-- example: rootrank query switch_around --param node=gpu-017 --param at=2026-03-01T10:05:42Z
WITH
    parseDateTime64BestEffort({at:String}, 9, 'UTC') AS moment,
    moment - toIntervalMinute({minutes:UInt32}) AS since, moment + toIntervalMinute({minutes:UInt32}) AS until,
    hanging AS
    (
        SELECT run_id, cluster, if(unit_kind = 'node', unit, node) AS host, facts['leaf_switch'] AS leaf
        FROM fleet_spans
        WHERE run = {run:String} AND facts['leaf_switch'] != '' AND started_at <= until
            AND (ended_at IS NULL OR ended_at > since)
    ),
    asked AS
    (
        SELECT DISTINCT run_id, cluster, leaf
        FROM hanging
        WHERE if({switch:String} != '', leaf = {switch:String}, host = {node:String})
    )
SELECT
    ifNull(aligned_time, lo_time) AS at, (toUnixTimestamp64Nano(at) - toUnixTimestamp64Nano(moment)) / 1e9 AS after_s,
    cluster, node, subject_switch AS switch, name, role, label, severity, count, subject_rank AS rank, source, line_no, body
FROM events
WHERE run = {run:String} AND day BETWEEN toDate(since) - 1 AND toDate(until) + {late_days:UInt16} AND ifNull(aligned_time, lo_time) BETWEEN since AND until
    AND if({role:String} = '', role != 'noise', role = {role:String})
    AND ((run_id, cluster, reporter) IN
            (SELECT run_id, cluster, host FROM hanging WHERE (run_id, cluster, leaf) IN (SELECT * FROM asked))
        OR (run_id, cluster, subject_switch) IN (SELECT * FROM asked) OR subject_switch = nullIf({switch:String}, ''))
ORDER BY at, node, source, offset
LIMIT {limit:UInt32}
