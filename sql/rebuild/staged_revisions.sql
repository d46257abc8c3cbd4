SELECT incident_id, max(revision) FROM rebuild_incident_revisions_rows GROUP BY incident_id
