-- The latest revisions of the incidents that began (or were seen) in the days.
SELECT incident, revision
FROM incidents
WHERE run = 'live' AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND toDate(ifNull(started_at, detected_at)) BETWEEN {since:Date} AND {until:Date}
ORDER BY incident_id
