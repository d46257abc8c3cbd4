-- The first of them can be created once: whoever comes second finds it there.
CREATE TABLE rebuild_events_rows AS events_rows;

CREATE TABLE rebuild_event_jobs_rows AS event_jobs_rows;

CREATE TABLE rebuild_incident_revisions_rows AS incident_revisions_rows;

CREATE TABLE rebuild_chain_steps_rows AS chain_steps_rows;

CREATE TABLE rebuild_culprits_rows AS culprits_rows;

-- What reading makes of the lines, for the job that it concerns: the topic of events of a rebuild. Batches come first,
-- then how far each node was read.
CREATE TABLE rebuild_batches
(
    job_key String,
    is_end Bool,
    place UInt64,
    record String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY (job_key, is_end, place);

-- What is known of each reporter at the end of its lines.
CREATE TABLE rebuild_folds
(
    reporter_key String,
    snapshot String CODEC(ZSTD(1))
)
ENGINE = MergeTree
ORDER BY reporter_key;

-- Jobs that began before the days, go on after them or of which lines are gone.
CREATE TABLE rebuild_cut_jobs
(
    cluster String,
    job_key String
)
ENGINE = MergeTree
ORDER BY (cluster, job_key);
