-- question: How long did it take from the first evidence to the incident, per class? Live only: a replay's evidence
-- question: is as old as its recording.
-- example: rootrank query evidence_latency
SELECT
    class, count() AS incidents,
    round(quantileExact(0.5)(latency_s), 3) AS p50_s,
    round(quantileExact(0.99)(latency_s), 3) AS p99_s,
    round(max(latency_s), 3) AS longest_s
FROM
(
    SELECT
        cluster, incident_id,
        argMax(class, revision) AS class,
        argMin((toUnixTimestamp64Nano(assumeNotNull(detected_at)) - toUnixTimestamp64Nano(assumeNotNull(started_at))) / 1e9,
            revision) AS latency_s
    FROM incident_revisions
    WHERE detected_at IS NOT NULL AND started_at IS NOT NULL AND run = 'live'
    GROUP BY run_id, cluster, incident_id
)
GROUP BY class
ORDER BY incidents DESC, class
