-- question: Which incidents are like this one, most alike first? Alike: the same class, the same place (GPU, node, switch),
-- question: the same steps of the chain. Last column: how often a day passes between two of its class.
-- param incident:String | the incident's id
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 50 | how many
-- example: rootrank query incidents_like --param incident=3f9a61c20b7d4e55
WITH
    steps AS
    (
        SELECT run_id, cluster, incident_id, groupUniqArray(event) AS events
        FROM chain_steps
        WHERE run = {run:String}
        GROUP BY run_id, cluster, incident_id
    ),
    described AS
    (
        SELECT
            i.*, s.events AS steps,
            arrayMap((n, g) -> concat(n, '/', g), arrayResize(culprit_nodes, length(culprit_gpus), ''), culprit_gpus) AS gpus
        FROM incidents AS i
        LEFT JOIN steps AS s ON i.run_id = s.run_id AND i.cluster = s.cluster AND i.incident_id = s.incident_id
        WHERE i.run = {run:String}
    ),
    (
        SELECT (cluster, class, domain, culprit_nodes, gpus, steps, started_at)
        FROM described
        WHERE incident_id = {incident:String}
        LIMIT 1
    ) AS this
SELECT
    incident_id, started_at, class, state, culprit_nodes, culprit_gpus, job_ids,
    class = this.2 AS same_class, cluster = this.1 AND hasAny(culprit_nodes, this.4) AS same_node,
    cluster = this.1 AND hasAny(gpus, this.5) AS same_gpu,
    length(arrayIntersect(steps, this.6)) / greatest(1, length(arrayDistinct(arrayConcat(steps, this.6)))) AS steps_alike,
    round(4 * same_class + (domain = this.3) + 2 * same_gpu + same_node + 2 * steps_alike, 2) AS alike,
    (toUnixTimestamp64Nano(assumeNotNull(started_at)) - toUnixTimestamp64Nano(assumeNotNull(this.7))) / 8.64e13
        AS days_after,
    explanation, cluster, run_id
FROM described
WHERE incident_id != {incident:String} AND state IN ('open', 'resolved')
    AND (class = this.2 OR (domain = this.3 AND (same_node OR steps_alike >= 0.5)) OR same_gpu)
ORDER BY alike DESC, abs(ifNull(days_after, 1e9)), incident_id
LIMIT {limit:UInt32}
