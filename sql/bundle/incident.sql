-- The newest revision of an incident, as it was published.
SELECT incident
FROM incident_revisions
WHERE incident_id = {incident:String} AND ({run:String} = '' OR run = {run:String})
ORDER BY revision DESC
LIMIT 1
