-- What people corrected after a moment, the last word on each incident.
SELECT cluster, incident_id, why, corrected_by
FROM corrections_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND corrected_at > {since:DateTime64(3, 'UTC')}
ORDER BY cluster, incident_id
