-- What the store sends, by name: one statement each, one round trip. {schema} and {v} as in functions.sql.

--## commit
SELECT {schema}.commit_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

--## commit_more
SELECT {schema}.commit_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)

--## load
SELECT s.numbers, s.more, s.writer, s.number, extract(epoch FROM clock_timestamp())::double precision, f.names, f.vals
FROM {schema}.session s LEFT JOIN LATERAL (
    SELECT array_agg(name) AS names, array_agg(value) AS vals FROM {schema}.field WHERE sid = s.sid AND s.numbers IS DISTINCT FROM $2::double precision[]
) f ON true WHERE s.key = $1

--## create
SELECT {schema}.create_{v}($1, $2, $3, $4, $5, $6)

--## open
SELECT * FROM {schema}.open_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

--## remove
SELECT {schema}.remove_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

--## discard
SELECT {schema}.discard_{v}($1)

--## piece
WITH head AS (
    SELECT sid, head FROM (
        SELECT sid, value AS head, 0 AS rank, 0 AS n FROM {schema}.session JOIN {schema}.field USING (sid) WHERE key = $1 AND name = convert_to('l:' || $2, 'UTF8')
        UNION ALL SELECT sid, head, 1, -n FROM {schema}.lingering WHERE key = $1 AND stream = $2 AND until > {schema}.clock_{v}($6)
    ) found ORDER BY rank, n LIMIT 1
)
SELECT head.head, e.seq, e.tag, e.data FROM head LEFT JOIN LATERAL (
    SELECT seq, tag, data, sum(octet_length(data)) FILTER (WHERE seq > $3) OVER w AS size, count(*) FILTER (WHERE seq > $3) OVER w AS number
    FROM (SELECT seq, tag, data FROM {schema}.event WHERE sid = head.sid AND stream = $2 AND seq >= $3 ORDER BY seq LIMIT $4 + 1) piece
    WINDOW w AS (ORDER BY seq)
) e ON e.number <= 1 OR (e.number <= $4 AND e.size <= $5) ORDER BY e.seq

--## sizes
SELECT seq, tag, octet_length(data) FROM {schema}.event JOIN {schema}.session USING (sid) WHERE key = $1 AND stream = $2 ORDER BY seq

--## due
SELECT key FROM {schema}.session WHERE hint <= {schema}.clock_{v}($1) ORDER BY hint LIMIT $2

--## listed
SELECT key FROM {schema}.session ORDER BY sid

--## listed_of
SELECT key FROM {schema}.session WHERE principal = $1 ORDER BY sid

--## subscribers
SELECT key FROM {schema}.subscription JOIN {schema}.session USING (sid) WHERE digest = sha256($1)

--## finished
SELECT s.key, substring(f.name FROM 3), x.value FROM {schema}.field f JOIN {schema}.session s USING (sid)
JOIN {schema}.field x ON x.sid = f.sid AND x.name = '\x783a'::bytea || substring(f.name FROM 3)
WHERE f.ended IS NOT NULL ORDER BY f.ended LIMIT $1 OFFSET $2

--## drop_state
SELECT {schema}.forget_area_{v}($1)

--## look
SELECT s.key, s.numbers, coalesce((SELECT held FROM {schema}.area WHERE name = s.key AND due IS NULL), 0),
    (SELECT value FROM {schema}.field WHERE sid = s.sid AND name = 'r'), (SELECT value FROM {schema}.field WHERE sid = s.sid AND name = 'm')
FROM {schema}.session s WHERE s.key = $1

--## after
SELECT s.key, s.numbers, coalesce((SELECT held FROM {schema}.area WHERE name = s.key AND due IS NULL), 0),
    (SELECT value FROM {schema}.field WHERE sid = s.sid AND name = 'r'), (SELECT value FROM {schema}.field WHERE sid = s.sid AND name = 'm')
FROM {schema}.session s WHERE s.key > $1 ORDER BY s.key LIMIT $2

--## totals
SELECT sum(sessions)::bigint, sum(bytes)::bigint, (SELECT count(*) FROM {schema}.session WHERE detached),
    (SELECT coalesce(sum(bytes), 0)::bigint FROM {schema}.kept) FROM {schema}.total

--## open_area
SELECT {schema}.open_area_{v}($1, $2, $3, $4, $5, $6, $7)

--## find_area
UPDATE {schema}.area SET due = {schema}.clock_{v}($3) + ttl WHERE name = $1 AND principal = $2 AND due > {schema}.clock_{v}($3) RETURNING 1

--## load_state
SELECT s.head, c.fields, c.vals, c.versions, o.ops, o.results FROM (
    SELECT head FROM {schema}.area WHERE name = $1 AND (due IS NULL OR due > {schema}.clock_{v}($4))
    UNION ALL SELECT '' FROM {schema}.session WHERE key = $1 AND NOT EXISTS (SELECT FROM {schema}.area WHERE name = $1)
) s, (
    SELECT array_agg(field) AS fields, array_agg(value) AS vals, array_agg(version) AS versions FROM {schema}.cell
    WHERE area = $1 AND digest IN (SELECT sha256(f) FROM unnest($2::bytea[]) f)
) c, (SELECT array_agg(op) AS ops, array_agg(result) AS results FROM {schema}.op WHERE area = $1 AND op = ANY ($3)) o

--## write_state
SELECT {schema}.write_state_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

--## load_task
SELECT name, value, version, expires, owner FROM {schema}.task WHERE key = $1

--## swap_task
SELECT {schema}.swap_task_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

--## own_tasks
SELECT key FROM {schema}.task WHERE owner = $1 AND expires > {schema}.clock_{v}($2)

--## orphan_tasks
SELECT key, name, owner, value, version FROM {schema}.task t WHERE expires > {schema}.clock_{v}($2) AND (
    owner <> '' AND NOT EXISTS (SELECT FROM {schema}.lease l WHERE l.owner = t.owner AND until > 0) OR key = ANY ($1)) LIMIT $3

--## renew
SELECT * FROM {schema}.renew_{v}($1, $2, $3, $4)

--## prove
SELECT {schema}.prove_{v}($1, $2)

--## release
UPDATE {schema}.lease SET until = 0, died = {schema}.clock_{v}($2) WHERE owner = $1 AND until > 0

--## replicas
SELECT replica, until - {schema}.clock_{v}($1) FROM {schema}.lease WHERE until > {schema}.clock_{v}($1) ORDER BY owner

--## dead
SELECT {schema}.dead_{v}($1, $2, $3)

--## owned
SELECT key FROM {schema}.work JOIN {schema}.session USING (sid) WHERE owner = $1

--## busy
SELECT sid, key FROM {schema}.work JOIN {schema}.session USING (sid) WHERE owner = $1 AND numbers[{running}] + numbers[{readers}] > 0 AND sid > $2 ORDER BY sid LIMIT $3

--## unregister
DELETE FROM {schema}.work w USING {schema}.session s WHERE w.owner = $1 AND s.key = $2 AND w.sid = s.sid

--## forward
SELECT {schema}.forward_{v}($1, $2, $3, $4, $5, $6, $7)

--## inbox
SELECT name, payload FROM {schema}.inbox WHERE replica = $1 AND taken IS NULL AND expires > {schema}.clock_{v}($2) ORDER BY n

--## take
UPDATE {schema}.inbox SET taken = $3 WHERE replica = $1 AND name = $2 AND (taken IS NULL OR taken = $3) RETURNING 1

--## announce
SELECT {schema}.announce_{v}($1, $2, $3)

--## newest
SELECT news FROM {schema}.about

--## news
SELECT n, event FROM {schema}.news WHERE n > $1 ORDER BY n LIMIT $2

--## secret
INSERT INTO {schema}.secret AS s (name, value, until) VALUES ($1, $2, {schema}.clock_{v}($4) + $3)
ON CONFLICT (name) DO UPDATE SET until = excluded.until RETURNING s.value

--## post_notice
INSERT INTO {schema}.notice (replica, value, until) VALUES ($1, $2, {schema}.clock_{v}($4) + $3)
ON CONFLICT (replica) DO UPDATE SET value = excluded.value, until = excluded.until

--## notices
SELECT value FROM {schema}.notice WHERE replica <> $1 AND until > {schema}.clock_{v}($2)

--## late_closings
SELECT * FROM {schema}.late_closings_{v}($1, $2, $3)

--## closing_reported
DELETE FROM {schema}.closing WHERE event = $1

--## sweep
SELECT {schema}.sweep_{v}($1, $2, $3, $4)

--## tell
SELECT pg_notify(channel, message) FROM unnest($1::text[], $2::text[]) AS told (channel, message)
