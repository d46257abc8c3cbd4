-- question: All lines of the nodes that an incident blames, around its beginning, of every source, in the order in which
-- question: they were read. Live lines alone: of a replayed line nobody knows when it was read; `rootrank query chain`
-- question: gives the lines of the steps, `rootrank query raw_lines_around` those around one of them.
-- param incident:String | the incident's id
-- param node:String = | this node instead of those that are blamed
-- param seconds:UInt32 = 300 | how far to look, both ways
-- param run:String = live | live or drill; of a replay no line is found
-- param limit:UInt32 = 10000 | how many lines
-- example: rootrank query lines_around_incident --param incident=3f9a61c20b7d4e55 --param seconds=60
WITH
    (
        SELECT (run_id, cluster, ifNull(started_at, detected_at), culprit_nodes)
        FROM incidents
        WHERE incident_id = {incident:String} AND run = {run:String}
        LIMIT 1
    ) AS asked,
    asked.1 AS in_run, asked.2 AS in_cluster, assumeNotNull(asked.3) AS moment,
    if({node:String} != '', [{node:String}], asked.4) AS nodes,
    moment - toIntervalSecond({seconds:UInt32}) AS since, moment + toIntervalSecond({seconds:UInt32}) AS until
SELECT
    ObservedTimestamp AS observed_at, raw_lines.Timestamp AS at,
    (toUnixTimestamp64Nano(ObservedTimestamp) - toUnixTimestamp64Nano(moment)) / 1e9 AS after_s, node, source, line_no,
    offset, SeverityText AS severity, Body AS body
FROM raw_lines
WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster AND has(nodes, reporter)
    AND day BETWEEN toDate(since) AND toDate(until) AND ObservedTimestamp BETWEEN since AND until
ORDER BY observed_at, node, source, generation, offset
LIMIT {limit:UInt32}
