-- Incidents that people have corrected.
SELECT DISTINCT incident_id FROM incident_corrections_rows FINAL
WHERE run = 'live' AND ({cluster:String} = '' OR cluster = {cluster:String})
