-- question: What happened on the nodes that an incident blames, around its beginning: events, spans (drains, repairs,
-- question: upgrades), jobs that began or ended there, other incidents, and what of the log is missing?
-- param incident:String | the incident's id
-- param node:String = | this node instead of those that are blamed
-- param minutes:UInt32 = 10 | how far to look, both ways
-- param late_days:UInt16 = 2 | find lines that were read up to so many days late; more reads more
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 5000 | how many rows
-- example: rootrank query node_around_incident --param incident=3f9a61c20b7d4e55 --param minutes=30
WITH
    (
        SELECT (run_id, cluster, ifNull(started_at, detected_at), culprit_nodes)
        FROM incidents
        WHERE incident_id = {incident:String} AND run = {run:String}
        LIMIT 1
    ) AS asked,
    asked.1 AS in_run, asked.2 AS in_cluster, assumeNotNull(asked.3) AS moment,
    if({node:String} != '', [{node:String}], asked.4) AS nodes,
    moment - toIntervalMinute({minutes:UInt32}) AS since, moment + toIntervalMinute({minutes:UInt32}) AS until
SELECT at, (toUnixTimestamp64Nano(at) - toUnixTimestamp64Nano(moment)) / 1e9 AS after_s, node, what, name, detail, source, line_no
FROM
(
    SELECT
        ifNull(aligned_time, lo_time) AS at, node, 'event' AS what, name, concat(toString(count), ' x ', body) AS detail,
        source, ifNull(line_no, 0) AS line_no
    FROM events
    WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster AND has(nodes, reporter)
        AND day BETWEEN toDate(since) - 1 AND toDate(until) + {late_days:UInt16} AND ifNull(aligned_time, lo_time) BETWEEN since AND until
    UNION ALL
    SELECT
        arrayJoin(if(ended_at IS NULL, [started_at], [started_at, assumeNotNull(ended_at)])) AS at,
        if(unit_kind = 'node', unit, fleet_spans.node) AS node, 'span' AS what,
        concat(kind, if(at = started_at, ' begins', ' ends')) AS name,
        concat(unit, if(ticket = '', '', concat(', ticket ', ticket)), if(action = '', '', concat(', ', action)),
            if(empty(facts), '', concat(', ', toString(facts)))) AS detail,
        source, row AS line_no
    FROM fleet_spans
    WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster
        AND has(nodes, if(unit_kind = 'node', unit, fleet_spans.node)) AND at BETWEEN since AND until
    UNION ALL
    SELECT
        arrayJoin(if(ended_at IS NULL, [p.started_at], [p.started_at, assumeNotNull(ended_at)])) AS at, node, 'job' AS what,
        concat(job_id, if(at = p.started_at, ' begins', ' ends')) AS name,
        concat('attempt ', toString(attempt), ', rank ', ifNull(toString(rank), 'not known')) AS detail, source,
        0 AS line_no
    FROM placement AS p
    WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster AND has(nodes, node)
        AND at BETWEEN since AND until
    UNION ALL
    SELECT
        assumeNotNull(ifNull(started_at, detected_at)) AS at, arrayStringConcat(arrayIntersect(culprit_nodes, nodes), ', ')
        AS node, 'incident' AS what, class AS name, concat(incident_id, ', ', state, ': ', explanation) AS detail,
        '' AS source, 0 AS line_no
    FROM incidents
    WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster AND hasAny(culprit_nodes, nodes)
        AND at BETWEEN since AND until
    UNION ALL
    SELECT
        toDateTime64(reported_at, 9, 'UTC') AS at, node, 'gap' AS what, reason AS name,
        concat(ifNull(toString(lost_lines), 'an unknown number of'), ' lines lost') AS detail, source, 0 AS line_no
    FROM gaps
    WHERE run = {run:String} AND run_id = in_run AND cluster = in_cluster AND has(nodes, node)
        AND at BETWEEN since AND until
)
ORDER BY at, node, what, source, line_no
LIMIT {limit:UInt32}
