-- question: Which nodes have stopped reporting, and which shippers speak for one node at the same time?
-- param seconds:UInt32 = 60 | silent means: no word for so long
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query silent_nodes --param seconds=300
SELECT
    'silent' AS problem, cluster, reporter, reported_at AS since,
    concat('last batch ', toString(last_batch_seq), ' of shipper ', shipper_id, ', spool ',
        formatReadableSize(spool_backlog_bytes)) AS detail,
    run, run_id
FROM progress
WHERE source = '' AND NOT ended
    AND ({run:String} = '' OR run = {run:String})
    AND reported_at < now64(3) - toIntervalSecond({seconds:UInt32})
UNION ALL
SELECT
    'two shippers' AS problem, cluster, reporter, overlap_from AS since,
    concat(shipper_id, ' and ', other_shipper_id, ' until ', toString(overlap_to)) AS detail,
    run, run_id
FROM shipper_conflicts
WHERE {run:String} = '' OR run = {run:String}
ORDER BY problem, since, cluster, reporter
