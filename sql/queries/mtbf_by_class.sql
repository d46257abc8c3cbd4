-- question: Which classes of failure interrupt how often, of all unit time in service, with Garwood's interval; and
-- question: which share of the failures of its category each is, next to the share of which the cause is unknown.
-- question: Dispersion (above 1.5: not Poisson, the interval is too narrow) and the share of the worst unit are of the
-- question: failures on units of that kind.
-- param from:String = | first UTC day, such as 2026-03-01; empty: 28 days ago
-- param to:String = | last UTC day; empty: today
-- param unit_kind:String = gpu | the units whose time counts: gpu or node; failures of both are counted
-- param cluster:String = | only this cluster
-- param level:Float64 = 0.95 | confidence of the interval
-- param as_of:String = 2299-01-01 00:00:00 | as it stood then (UTC)
-- param run:String = live | live, replay or drill
-- param run_id:String = | only this run: needed where there are several replays
-- example: rootrank query mtbf_by_class --param from=2026-03-01 --param to=2026-03-31 --param cluster=c1
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
    -- Observed is in service: leaving out rows without any leaves nothing out, and counts units at a third of the cost.
    (
        SELECT (sum(toUInt128(in_service_ns)), sum(toUInt128(observed_ns)), uniqExact(unit_id))
        FROM exposure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND day BETWEEN first_day AND last_day AND unit_kind = {unit_kind:String} AND in_service_ns > 0
            AND ({cluster:String} = '' OR cluster = {cluster:String})
    ) AS whole,
    whole.1 / 3.6e12 AS hours,
    (
        SELECT throwIf({run:String} != 'live' AND {run_id:String} = '' AND uniqExact(run_id) > 1,
            'there are several runs of this kind: give run_id')
        FROM standing_builds_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
            AND ({cluster:String} = '' OR cluster = {cluster:String})
    ) AS mixed,
    (SELECT throwIf(NOT ({level:Float64} > 0 AND {level:Float64} < 1), 'level lies between 0 and 1')) AS refused,
    -- A failure of a GPU is one of its node, not the other way round. An empty name: on no unit of the kind.
    failed AS
    (
        SELECT
            category, component, class,
            multiIf(unit_kind = {unit_kind:String}, unit, {unit_kind:String} = 'node', node, '') AS name,
            if(name = '', 0, cityHash64(cluster, name)) AS carrier, count() AS failures,
            sum(ifNull(lost_gpu_hours, 0)) AS lost
        FROM failure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND day BETWEEN first_day AND last_day
            AND ({cluster:String} = '' OR cluster = {cluster:String})
        GROUP BY category, component, class, name, carrier
    ),
    served AS
    (
        SELECT unit_id, sum(in_service_ns) AS at_risk_ns
        FROM exposure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND day BETWEEN first_day AND last_day AND unit_kind = {unit_kind:String}
            AND unit_id IN (SELECT carrier FROM failed)
        GROUP BY unit_id
        HAVING at_risk_ns > 0
    ),
    counted AS
    (
        SELECT
            category, component, class, sum(failures) AS n, countIf(at_risk_ns > 0) AS units_with_it,
            sumIf(failures, at_risk_ns > 0) AS placed, maxIf(failures, at_risk_ns > 0) AS worst,
            sumIf(pow(failures, 2) / at_risk_ns, at_risk_ns > 0) * toFloat64(whole.1) AS squares, sum(lost) AS lost_gpu_hours
        FROM failed
        LEFT JOIN served ON failed.carrier = served.unit_id
        GROUP BY category, component, class
    )
SELECT
    category, component, class, n, units_with_it, 'in_service' AS exposure, whole.3 AS units,
    round(hours, 3) AS unit_hours, hours / n AS mtbf_hours,
    hours / garwood_hi(toFloat64(n), (1 - {level:Float64}) / 2) AS mtbf_lo_hours,
    hours / garwood_lo(toFloat64(n), (1 - {level:Float64}) / 2) AS mtbf_hi_hours,
    if(placed = 0 OR units < 2, NULL, greatest(0., squares / placed - placed) / (units - 1)) AS dispersion,
    if(placed = 0, NULL, worst / placed) AS worst_unit_share, if(hours = 0, NULL, 1 - whole.2 / whole.1) AS unobserved_share,
    n / sum(n) OVER (PARTITION BY category) AS share_of_category,
    sumIf(n, category = 'unknown') OVER () / sum(n) OVER () AS unknown_share, lost_gpu_hours
FROM counted
WHERE NOT refused AND NOT mixed
ORDER BY category, n DESC, class
SETTINGS join_use_nulls = 0
