-- Each statement is one step that happens or does not, and to do it again changes nothing: rows replace their equals.
-- Links come before events, and chains before incidents: who sees one sees what belongs to it.
ALTER TABLE event_jobs_rows ATTACH PARTITION ALL FROM rebuild_event_jobs_rows;

ALTER TABLE events_rows ATTACH PARTITION ALL FROM rebuild_events_rows;

ALTER TABLE chain_steps_rows ATTACH PARTITION ALL FROM rebuild_chain_steps_rows;

ALTER TABLE culprits_rows ATTACH PARTITION ALL FROM rebuild_culprits_rows;

ALTER TABLE incident_revisions_rows ATTACH PARTITION ALL FROM rebuild_incident_revisions_rows;
