-- Events of the days by name: stored now, made again, and what would stand after a swap.
WITH
    made AS (SELECT * FROM rebuild_events_rows FINAL),
    stood AS (SELECT * FROM events WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})),
    both AS
    (
        SELECT name, 1 AS before, toInt64((run_id, cluster, reporter, event_id) NOT IN
            (SELECT run_id, cluster, reporter, event_id FROM made)) AS after, 0 AS added, 0 AS gone
        FROM stood
        UNION ALL
        SELECT name, 0, toInt64(NOT is_gone), toInt64(NOT is_gone AND (run_id, cluster, reporter, event_id) NOT IN
            (SELECT run_id, cluster, reporter, event_id FROM stood)), toInt64(is_gone)
        FROM made
    )
SELECT name, sum(before), sum(after), sum(added), sum(gone)
FROM both
GROUP BY name
ORDER BY name
