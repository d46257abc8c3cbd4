-- Where incidents that would be written stand now.
SELECT incident_id, max(revision)
FROM incident_revisions
WHERE run = 'live' AND (run_id, cluster, incident_id) IN
    (SELECT run_id, cluster, incident_id FROM rebuild_incident_revisions_rows)
GROUP BY incident_id
