-- question: Which wall clocks jumped, and where did a measured clock begin anew (epoch), in the last hours?
-- question: Many nodes at once in a new epoch of one broker: it was the broker's clock that jumped.
-- param hours:UInt32 = 24 | how far to look back
-- param node:String = | only this node
-- param run:String = live | live, replay or drill; empty: all
-- param limit:UInt32 = 1000 | how many
-- example: rootrank query clock_steps --param hours=2
WITH
    since AS (SELECT now64(3) - toIntervalHour({hours:UInt32}) AS at),
    spans AS
    (
        SELECT
            *,
            lagInFrame(epoch, 1, epoch) OVER
            (
                PARTITION BY run, run_id, cluster, node, boot_id, broker_id ORDER BY t_from_raw_ns
                ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
            ) AS epoch_before
        FROM clock_segments
        WHERE reported_at >= (SELECT at FROM since) - toIntervalMinute(5)
            AND ({run:String} = '' OR run = {run:String})
    ),
    jumps AS
    (
        SELECT
            *,
            groupArray((broker_id, t_from_raw_ns, t_to_raw_ns)) OVER
                (PARTITION BY run, run_id, cluster, node, boot_id) AS others
        FROM spans
        WHERE wall_step_ns != 0
    ),
    found AS
    (
        -- Every broker of a node shows a jump of its wall clock; one of them tells it.
        SELECT 'wall clock' AS what, wall_step_ns, * EXCEPT (wall_step_ns, others)
        FROM jumps
        WHERE NOT arrayExists(
            o -> o.1 < broker_id AND o.2 < t_to_raw_ns AND o.3 > t_from_raw_ns, others)
        UNION ALL
        SELECT 'new epoch' AS what, 0 AS wall_step_ns, * EXCEPT (wall_step_ns)
        FROM spans
        WHERE epoch != epoch_before
    )
SELECT
    ifNull(if(what = 'new epoch', from_time, to_time), toDateTime64(reported_at, 9, 'UTC')) AS at, cluster, node, what,
    if(what = 'new epoch', NULL, toDecimal128(wall_step_ns, 6) / 1000000) AS step_ms,
    epoch_before, epoch, broker_id AS reference_broker,
    count() OVER
    (
        PARTITION BY run, run_id, cluster, broker_id, what ORDER BY toUnixTimestamp(reported_at)
        RANGE BETWEEN 20 PRECEDING AND 20 FOLLOWING
    ) AS at_once,
    quality, reason, boot_id, run, run_id
FROM found
WHERE reported_at >= (SELECT at FROM since) AND ({node:String} = '' OR node = {node:String})
ORDER BY at DESC, cluster, node
LIMIT {limit:UInt32}
