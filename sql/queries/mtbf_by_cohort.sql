-- question: How often do units of each cohort fail: n, time at risk of the kind asked for, mean time between failures
-- question: with Garwood's interval, dispersion (above 1.5: not Poisson, the interval is too narrow), the share of the
-- question: worst unit, and the share of time in service that no agent watched. Counted: failures blamed on that kind
-- question: of unit that had time at risk (others: uncounted); those blamed on nobody stand under an empty cohort.
-- param from:String = | first UTC day, such as 2026-03-01; empty: 28 days ago
-- param to:String = | last UTC day; empty: today
-- param by:String = sku | cluster, sku, driver, rack, position, firmware or batch
-- param unit_kind:String = gpu | gpu or node
-- param exposure:String = in_service | installed, in_service, busy (counts failures outside jobs too) or observed
-- param category:String = infrastructure | infrastructure, planned, user_code or unknown: never in one figure
-- param cluster:String = | only this cluster
-- param level:Float64 = 0.95 | confidence of the interval
-- param as_of:String = 2299-01-01 00:00:00 | as it stood then (UTC)
-- param run:String = live | live, replay or drill
-- param run_id:String = | only this run: needed where there are several replays
-- example: rootrank query mtbf_by_cohort --param by=driver --param from=2026-03-01 --param to=2026-03-31
WITH
    -- Garwood's limits; explained in garwood.sql.
    (n) -> if(n < 16, lgamma(n + 1) - (n + 0.5) * log(n) + n - 0.9189385332046727,
        (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / n / n) / n / n) / n / n) / n / n) / n) AS stirling_rest,
    (n, mu) -> if(n = 0, -mu, -n * ((mu - n) / n - log1p((mu - n) / n)) - stirling_rest(n)
        - 0.5 * log(6.283185307179586 * n)) AS log_poisson,
    (n) -> range(toUInt64(20 + 9 * sqrt(n))) AS enough,
    (n, mu) -> 1 + arraySum(x -> exp(x), arrayCumSum(arrayMap(i -> log(mu / (n + i + 1)), enough(n)))) AS at_least,
    (n, mu) -> 1 + arraySum(x -> exp(x), arrayCumSum(arrayMap(i -> log((n - i) / mu),
        arrayFilter(i -> i < n, enough(n))))) AS at_most,
    (n, tail) -> if(n = 0, 0., exp(arrayFold((x, i) -> x - (log_poisson(n, exp(x)) + log(at_least(n, exp(x)))
        - log(tail)) * at_least(n, exp(x)) / n, range(8), log(n)))) AS garwood_lo,
    (n, tail) -> arrayFold((mu, i) -> mu + (log_poisson(n, mu) + log(at_most(n, mu)) - log(tail)) * at_most(n, mu),
        range(8), n + 1.) AS garwood_hi,
    -- end
    if({from:String} = '', today() - 28, toDate(parseDateTime({from:String}, '%Y-%m-%d', 'UTC'))) AS first_day,
    if({to:String} = '', today(), toDate(parseDateTime({to:String}, '%Y-%m-%d', 'UTC'))) AS last_day,
    (
        SELECT throwIf({by:String} NOT IN ('cluster', 'sku', 'driver', 'rack', 'position', 'firmware', 'batch')
            OR {exposure:String} NOT IN ('installed', 'in_service', 'busy', 'observed')
            OR NOT ({level:Float64} > 0 AND {level:Float64} < 1),
            '`by` and `exposure` are words that the head of this query names, and level lies between 0 and 1')
    ) AS refused,
    (
        SELECT throwIf({run:String} != 'live' AND {run_id:String} = '' AND uniqExact(run_id) > 1,
            'there are several runs of this kind: give run_id')
        FROM standing_builds_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
            AND ({cluster:String} = '' OR cluster = {cluster:String})
    ) AS mixed,
    -- Grouped by one number for unit and cohort: by their names it would take three times as long. Of each choice every
    -- word has an `if` of its own: those the engine decides beforehand, and reads nothing of what is not asked for.
    counted AS
    (
        SELECT
            bitXor(unit_id,
                if({by:String} = 'cluster', cityHash64(cluster), 0) + if({by:String} = 'sku', cityHash64(sku), 0)
                + if({by:String} = 'driver', cityHash64(driver), 0) + if({by:String} = 'rack', cityHash64(rack), 0)
                + if({by:String} = 'position', cityHash64(position), 0) + if({by:String} = 'batch', cityHash64(batch), 0)
                + if({by:String} = 'firmware', cityHash64(firmware), 0)) AS key,
            concat(
                if({by:String} = 'cluster', any(cluster), ''), if({by:String} = 'sku', any(sku), ''),
                if({by:String} = 'driver', any(driver), ''), if({by:String} = 'rack', any(rack), ''),
                if({by:String} = 'position', any(position), ''), if({by:String} = 'batch', any(batch), ''),
                if({by:String} = 'firmware', any(firmware), '')) AS cohort,
            sum(if({exposure:String} = 'installed', installed_ns, 0) + if({exposure:String} = 'busy', busy_ns, 0)
                + if({exposure:String} = 'in_service', in_service_ns, 0)
                + if({exposure:String} = 'observed', observed_ns, 0)) AS at_risk_ns,
            sum(in_service_ns) AS service_ns, sum(observed_ns) AS watched_ns, toUInt64(0) AS failures,
            toUInt64(0) AS nobodys
        FROM exposure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND day BETWEEN first_day AND last_day AND unit_kind = {unit_kind:String}
            AND ({cluster:String} = '' OR cluster = {cluster:String})
        GROUP BY key
        UNION ALL
        SELECT
            bitXor(unit_id, cityHash64(multiIf({by:String} = 'cluster', cluster, {by:String} = 'sku', sku,
                {by:String} = 'driver', driver, {by:String} = 'rack', rack, {by:String} = 'position', position,
                {by:String} = 'firmware', firmware, batch) AS of_cohort)) AS key,
            any(of_cohort) AS cohort, toUInt64(0) AS at_risk_ns,
            toUInt64(0) AS service_ns, toUInt64(0) AS watched_ns, countIf(unit != '') AS failures,
            countIf(unit = '') AS nobodys
        FROM failure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND day BETWEEN first_day AND last_day AND category = {category:String}
            AND (unit_kind = {unit_kind:String} OR unit = '')
            AND ({cluster:String} = '' OR cluster = {cluster:String})
        GROUP BY key
    ),
    by_unit AS
    (
        SELECT
            any(counted.cohort) AS cohort, sum(counted.at_risk_ns) AS at_risk_ns, sum(counted.service_ns) AS service_ns,
            sum(counted.watched_ns) AS watched_ns, sum(counted.failures) AS failures, sum(counted.nobodys) AS nobodys
        FROM counted
        WHERE NOT refused AND NOT mixed
        GROUP BY key
    ),
    -- 64 bits of ns end at 584 years: 100,000 units are past that after two days.
    summed AS
    (
        SELECT
            cohort, countIf(at_risk_ns > 0) AS units, sumIf(failures, at_risk_ns > 0) AS placed,
            placed + sum(nobodys) AS n, sumIf(failures, at_risk_ns = 0) AS uncounted,
            sum(toUInt128(at_risk_ns)) AS exposed_ns, exposed_ns / 3.6e12 AS hours,
            sum(toUInt128(service_ns)) AS in_service_ns, sum(toUInt128(watched_ns)) AS seen_ns,
            maxIf(failures, at_risk_ns > 0) AS worst,
            sumIf(pow(failures, 2) / at_risk_ns, failures > 0 AND at_risk_ns > 0) * toFloat64(exposed_ns) AS squares
        FROM by_unit
        GROUP BY cohort
    )
SELECT
    cohort, n, {exposure:String} AS exposure, units, round(hours, 3) AS unit_hours,
    if(n = 0 OR hours = 0, NULL, hours / n) AS mtbf_hours,
    if(hours = 0, NULL, hours / garwood_hi(toFloat64(n), (1 - {level:Float64}) / 2)) AS mtbf_lo_hours,
    if(n = 0 OR hours = 0, NULL, hours / garwood_lo(toFloat64(n), (1 - {level:Float64}) / 2)) AS mtbf_hi_hours,
    if(hours = 0, NULL, 24000 * n / hours) AS per_1000_unit_days,
    if(placed = 0 OR units < 2, NULL, greatest(0., squares / placed - placed) / (units - 1)) AS dispersion,
    if(placed = 0, NULL, worst / placed) AS worst_unit_share,
    if(in_service_ns = 0, NULL, 1 - seen_ns / in_service_ns) AS unobserved_share, uncounted
FROM summed
ORDER BY n DESC, cohort
LIMIT 1000
