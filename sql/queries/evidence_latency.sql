-- question: How long did it take from the first evidence to the incident, per run and class?
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query evidence_latency
SELECT
    run, class, count() AS incidents,
    round(quantileExact(0.5)(latency_s), 3) AS p50_s,
    round(quantileExact(0.99)(latency_s), 3) AS p99_s,
    round(max(latency_s), 3) AS longest_s
FROM
(
    SELECT
        run, run_id, cluster, incident_id,
        argMax(class, revision) AS class,
        argMin((toUnixTimestamp64Nano(assumeNotNull(detected_at)) - toUnixTimestamp64Nano(assumeNotNull(started_at))) / 1e9,
            revision) AS latency_s
    FROM incident_revisions
    WHERE detected_at IS NOT NULL AND started_at IS NOT NULL AND ({run:String} = '' OR run = {run:String})
    GROUP BY run, run_id, cluster, incident_id
)
GROUP BY run, class
ORDER BY incidents DESC, run, class
