DROP VIEW IF EXISTS runs_heard;
