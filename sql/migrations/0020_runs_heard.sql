-- Of several replays people ask for the newest: the one that was heard of last.
CREATE VIEW IF NOT EXISTS runs_heard AS
SELECT run, run_id, max(reported_at) AS heard_at
FROM progress
GROUP BY run, run_id;

ALTER TABLE runs_heard MODIFY COMMENT 'When each run was last heard of: live, and every replay and drill.';

ALTER TABLE runs_heard COMMENT COLUMN heard_at 'when an agent of it last told how far it has read';
