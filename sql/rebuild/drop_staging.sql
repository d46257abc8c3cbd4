DROP TABLE IF EXISTS rebuild_cut_jobs SYNC;

DROP TABLE IF EXISTS rebuild_folds SYNC;

DROP TABLE IF EXISTS rebuild_batches SYNC;

DROP TABLE IF EXISTS rebuild_culprits_rows SYNC;

DROP TABLE IF EXISTS rebuild_chain_steps_rows SYNC;

DROP TABLE IF EXISTS rebuild_incident_revisions_rows SYNC;

DROP TABLE IF EXISTS rebuild_event_jobs_rows SYNC;

DROP TABLE IF EXISTS rebuild_events_rows SYNC;
