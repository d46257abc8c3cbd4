-- question: What do the nodes of an incident share, and which other nodes hang there: rack, NVLink domain, leaf switch, power feed?
-- question: `of_incident` names the nodes that the incident blames or its job ran on.
-- param incident:String | the incident's id
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 200 | how many
-- example: rootrank query incident_neighbours --param incident=7b1c2d3e4f5a6b7c
WITH
    asked AS
    (
        SELECT run_id, cluster, ifNull(started_at, detected_at) AS moment, culprit_nodes, job_ids
        FROM incidents
        WHERE run = {run:String} AND incident_id = {incident:String}
    ),
    ran AS
    (
        SELECT DISTINCT p.run_id AS run_id, p.cluster AS cluster, p.node AS host
        FROM placement AS p
        WHERE p.run = {run:String} AND p.job_id IN (SELECT arrayJoin(job_ids) FROM asked)
    ),
    mine AS
    (
        SELECT run_id, cluster, host FROM ran
        UNION DISTINCT
        SELECT run_id, cluster, arrayJoin(culprit_nodes) AS host FROM asked
    ),
    hanging AS
    (
        SELECT
            t.run_id AS run_id, t.cluster AS cluster, t.node AS host,
            arrayJoin(arrayFilter(x -> x.2 != '', [
                ('rack', t.rack), ('nvlink_domain', t.nvlink_domain), ('leaf_switch', t.leaf_switch),
                ('power_feed', t.power_feed)])) AS element
        FROM topology AS t
        WHERE t.run = {run:String} AND t.started_at <= (SELECT max(moment) FROM asked)
            AND (t.ended_at IS NULL OR t.ended_at > (SELECT max(moment) FROM asked))
    )
SELECT
    cluster, element.1 AS kind, element.2 AS element_name,
    arraySort(groupUniqArrayIf(host, (run_id, cluster, host) IN (SELECT * FROM mine))) AS of_incident,
    arraySort(groupUniqArrayIf(64)(host, (run_id, cluster, host) NOT IN (SELECT * FROM mine))) AS others
FROM hanging
GROUP BY run_id, cluster, element
HAVING notEmpty(of_incident)
ORDER BY length(of_incident) DESC, kind, element_name
LIMIT {limit:UInt32}
