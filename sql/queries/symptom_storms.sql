-- question: When did many nodes or ranks show the same symptom at once, and which incident explains it? A storm: one name
-- question: on at least so many nodes within a window of so many seconds.
-- param from:String = | the first moment, such as 2026-03-01T00:00:00Z; empty: a day ago
-- param to:String = | the last moment; empty: now
-- param seconds:UInt32 = 60 | the window
-- param nodes:UInt32 = 2 | at least so many nodes
-- param late_days:UInt16 = 2 | find lines that were read up to so many days late; more reads more
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 200 | how many storms
-- example: rootrank query symptom_storms --param from=2026-03-01T00:00:00Z --param to=2026-03-02T00:00:00Z --param nodes=8
WITH
    if({from:String} = '', now64(9) - toIntervalDay(1), parseDateTime64BestEffortOrZero({from:String}, 9, 'UTC')) AS since,
    if({to:String} = '', now64(9), parseDateTime64BestEffortOrZero({to:String}, 9, 'UTC')) AS until,
    storms AS
    (
        SELECT
            run_id, cluster, name, min(ifNull(aligned_time, lo_time)) AS began_at,
            max(ifNull(aligned_time, lo_time)) AS ended_at, sum(count) AS lines, uniqExact(node) AS on_nodes,
            uniqExactIf(subject_rank, subject_rank IS NOT NULL) AS ranks,
            argMin(node, ifNull(aligned_time, lo_time)) AS first_node, any(body) AS example
        FROM events
        WHERE run = {run:String} AND role = 'symptom' AND day BETWEEN toDate(since) - 1 AND toDate(until) + {late_days:UInt16}
            AND aligned_time BETWEEN since AND until
        GROUP BY run_id, cluster, name, intDiv(toUnixTimestamp64Nano(aligned_time), {seconds:UInt32} * 1000000000)
        HAVING on_nodes >= {nodes:UInt32}
    )
SELECT
    s.began_at AS began_at, s.ended_at AS ended_at, s.cluster AS cluster, s.name AS name, s.on_nodes AS nodes,
    s.ranks AS ranks, s.lines AS lines, s.first_node AS first_node,
    groupUniqArrayIf(10)((i.incident_id, i.class), i.incident_id != '') AS incidents, any(s.example) AS example, s.run_id AS run_id
FROM storms AS s
LEFT JOIN
(
    SELECT run_id, cluster, incident_id, class, assumeNotNull(ifNull(started_at, detected_at)) AS at
    FROM incidents
    WHERE run = {run:String} AND state IN ('open', 'resolved')
) AS i ON s.run_id = i.run_id AND s.cluster = i.cluster AND i.at <= s.ended_at AND i.at > s.began_at - toIntervalMinute(60)
GROUP BY run_id, cluster, name, began_at, ended_at, nodes, ranks, lines, first_node
ORDER BY began_at, cluster, name
LIMIT {limit:UInt32}
SETTINGS join_use_nulls = 0
