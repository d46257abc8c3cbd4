-- When a span or an attempt began and ended; a column without words of its own takes those of incidents.

ALTER TABLE fleet_spans
    COMMENT COLUMN started_at 'when it began',
    COMMENT COLUMN ended_at 'when it ended; null: still';

ALTER TABLE job_attempts
    COMMENT COLUMN started_at 'when the attempt began',
    COMMENT COLUMN ended_at 'when it ended; null: it runs, or nobody told its end';

ALTER TABLE topology
    COMMENT COLUMN started_at 'since when it hangs there',
    COMMENT COLUMN ended_at 'until when; null: still';

ALTER TABLE node_facts
    COMMENT COLUMN started_at 'since when it is so',
    COMMENT COLUMN ended_at 'until when; null: still';
