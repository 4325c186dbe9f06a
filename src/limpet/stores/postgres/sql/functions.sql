-- The functions of one release. Their names end with {v}, which is made from this text: releases that differ have functions of
-- their own, side by side. Each function is one atomic step. Rows are locked in the order gate, session, area, kept; a part of `total` that
-- another transaction has locked is passed over, so that nothing waits for it.
-- Rows of a session are searched one by one, with all columns of the index. For a list (`= ANY`, a join) PostgreSQL reads everything that the session
-- has had since the last VACUUM.

CREATE FUNCTION {schema}.clock_{v}(given double precision) RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, extract(epoch FROM clock_timestamp())::double precision)
$$;

CREATE FUNCTION {schema}.count_{v}(d_bytes bigint, d_sessions bigint, d_tasks bigint, d_task_bytes bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE chosen integer;
BEGIN
    SELECT part INTO chosen FROM {schema}.total WHERE part >= pg_backend_pid() % 32 ORDER BY part LIMIT 1 FOR UPDATE SKIP LOCKED;
    UPDATE {schema}.total SET bytes = bytes + d_bytes, sessions = sessions + d_sessions, tasks = tasks + d_tasks,
        task_bytes = task_bytes + d_task_bytes WHERE part = coalesce(chosen, pg_backend_pid() % 32);
END $$;

CREATE FUNCTION {schema}.keep_{v}(p_principal bytea, change bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF change <> 0 THEN
        INSERT INTO {schema}.kept AS k VALUES (p_principal, change) ON CONFLICT (principal) DO UPDATE SET bytes = k.bytes + excluded.bytes;
        DELETE FROM {schema}.kept WHERE principal = p_principal AND bytes <= 0;
    END IF;
END $$;

-- Documents and logs

CREATE FUNCTION {schema}.append_{v}(p_sid bigint, p_streams text[], p_seqs bigint[], p_tags bigint[], p_data bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- What a failover has left behind under these numbers. The events of a stream are together, and the first one is the oldest.
    FOR i IN 1 .. cardinality(p_streams) LOOP
        IF i = 1 OR p_streams[i] <> p_streams[i - 1] THEN
            DELETE FROM {schema}.event WHERE sid = p_sid AND stream = p_streams[i] AND seq >= p_seqs[i];
        END IF;
    END LOOP;
    INSERT INTO {schema}.event (sid, stream, seq, tag, data)
        SELECT p_sid, s, n, t, d FROM unnest(p_streams, p_seqs, p_tags, p_data) u(s, n, t, d);
END $$;

-- verdict: 0 no session, 1 applied, 2 applied with these numbers, 3 sent before, 4 writes were lost, 5 stale, 6 the writer is dead.
-- A named type, because PostgreSQL builds the type of OUT parameters again in each call, which takes longer than the update.
CREATE TYPE {schema}.reply_{v} AS (verdict integer, numbers double precision[], more bytea, names bytea[], vals bytea[], bytes bigint);

CREATE FUNCTION {schema}.commit_{v}(
    p_key text, p_writer text, p_number bigint, p_acknowledged bigint, p_exact double precision[], p_after double precision[],
    p_put bytea[], p_values bytea[], p_delete bytea[], p_lives text,
    p_compare bytea[] = NULL, p_known bytea[] = NULL, p_conditions double precision[] = NULL,
    p_streams text[] = NULL, p_seqs bigint[] = NULL, p_tags bigint[] = NULL, p_data bytea[] = NULL, p_cut text[] = NULL, p_until bigint[] = NULL,
    p_drop text[] = NULL, p_uris bytea[] = NULL, p_most bigint = NULL
) RETURNS {schema}.reply_{v} LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    r {schema}.reply_{v};
    s record;
    later double precision[];
    grown bigint;
    held bigint;
    last bigint;
    at integer;
    id bigint;
    whose bytea;
    named bytea;
    log text;
BEGIN
    -- Nearly every commit: the writer is the last one, knows all of the session, and lives.
    UPDATE {schema}.session AS t SET numbers = p_after, number = p_number, hint = p_after[{hint}], detached = p_after[{state}] = 1
        WHERE t.key = p_key AND t.numbers = p_exact AND t.writer = p_writer
            AND (p_lives IS NULL OR EXISTS (SELECT FROM {schema}.lease WHERE owner = p_lives AND until > 0))
        RETURNING t.sid, t.principal INTO id, whose;
    r.verdict := 1;
    IF id IS NOT NULL THEN
        grown := p_after[{size}] - p_exact[{size}];
        held := p_after[{kept}] - p_exact[{kept}];
    ELSE
        IF p_lives IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.lease WHERE owner = p_lives AND until > 0) THEN
            r.verdict := 6;
            RETURN r;
        END IF;
        SELECT t.sid, t.principal, t.numbers, t.more, t.writer, t.number INTO s FROM {schema}.session t WHERE t.key = p_key FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            r.verdict := 0;
            RETURN r;
        END IF;
        id := s.sid;
        whose := s.principal;
        later := p_after;
        IF p_exact IS NULL OR s.numbers <> p_exact THEN
            r.numbers := s.numbers;
            r.more := s.more;
            IF s.writer = p_writer THEN
                last := s.number;
            ELSE
                SELECT convert_from(value, 'UTF8')::bigint INTO last FROM {schema}.field WHERE sid = id AND name = convert_to('o:' || p_writer, 'UTF8');
                last := coalesce(last, 0);
            END IF;
            IF last = p_number THEN
                r.verdict := 3;
                RETURN r;
            ELSIF last < p_acknowledged OR last > p_number THEN
                r.verdict := 4;
                RETURN r;
            END IF;
            r.verdict := 5;
            IF p_compare IS NULL THEN
                SELECT array_agg(name), array_agg(value) INTO r.names, r.vals FROM {schema}.field WHERE sid = id;
                IF s.writer <> '' THEN
                    r.names := r.names || convert_to('o:' || s.writer, 'UTF8');
                    r.vals := r.vals || convert_to(s.number::text, 'UTF8');
                END IF;
                RETURN r;
            END IF;
            SELECT array_agg(w.name), array_agg(w.value) INTO r.names, r.vals FROM (
                SELECT u.name, u.known, (SELECT f.value FROM {schema}.field f WHERE f.sid = id AND f.name = u.name) AS value
                FROM unnest(p_compare, p_known) u(name, known)
            ) w WHERE w.value IS DISTINCT FROM w.known;
            IF r.names IS NOT NULL THEN
                RETURN r;
            END IF;
            at := 2;
            FOR i IN 1 .. p_conditions[1]::integer LOOP
                IF NOT s.numbers[p_conditions[at]::integer + 1] BETWEEN p_conditions[at + 1] AND p_conditions[at + 2] THEN
                    RETURN r;
                END IF;
                at := at + 3;
            END LOOP;
            later := s.numbers;
            later[1] := later[1] + 1;
            WHILE at < cardinality(p_conditions) LOOP
                last := p_conditions[at]::integer + 1;
                later[last] := CASE p_conditions[at + 1] WHEN 0 THEN p_conditions[at + 2] WHEN 1 THEN later[last] + p_conditions[at + 2]
                    WHEN 2 THEN greatest(later[last], p_conditions[at + 2]) ELSE least(later[last], p_conditions[at + 2]) END;
                at := at + 3;
            END LOOP;
            r.numbers := later;
            r.verdict := 2;
        END IF;
        IF s.writer <> p_writer THEN
            IF s.writer <> '' THEN
                INSERT INTO {schema}.field (sid, name, value) VALUES (id, convert_to('o:' || s.writer, 'UTF8'), convert_to(s.number::text, 'UTF8'))
                    ON CONFLICT (sid, name) DO UPDATE SET value = excluded.value;
            END IF;
            DELETE FROM {schema}.field WHERE sid = id AND name = convert_to('o:' || p_writer, 'UTF8');
            IF NOT FOUND THEN
                INSERT INTO {schema}.work VALUES (split_part(p_writer, '/', 1), id) ON CONFLICT DO NOTHING;
            END IF;
        END IF;
        UPDATE {schema}.session AS t SET numbers = later, writer = p_writer, number = p_number, hint = later[{hint}], detached = later[{state}] = 1
            WHERE t.sid = id;
        grown := later[{size}] - s.numbers[{size}];
        held := later[{kept}] - s.numbers[{kept}];
    END IF;
    IF p_put IS NOT NULL THEN
        INSERT INTO {schema}.field (sid, name, value, ended)
            SELECT id, n, v, CASE WHEN substring(n FOR 2) = '\x663a'::bytea THEN v END FROM unnest(p_put, p_values) u(n, v)
            ON CONFLICT (sid, name) DO UPDATE SET value = excluded.value, ended = excluded.ended;
    END IF;
    IF p_delete IS NOT NULL THEN
        FOREACH named IN ARRAY p_delete LOOP
            DELETE FROM {schema}.field WHERE sid = id AND name = named;
        END LOOP;
    END IF;
    IF p_drop IS NOT NULL THEN
        FOREACH log IN ARRAY p_drop LOOP
            DELETE FROM {schema}.event WHERE sid = id AND stream = log;
        END LOOP;
    END IF;
    IF p_streams IS NOT NULL THEN
        PERFORM {schema}.append_{v}(id, p_streams, p_seqs, p_tags, p_data);
    END IF;
    IF p_cut IS NOT NULL THEN
        FOR i IN 1 .. cardinality(p_cut) LOOP
            DELETE FROM {schema}.event WHERE sid = id AND stream = p_cut[i] AND seq <= p_until[i];
        END LOOP;
    END IF;
    IF p_uris IS NOT NULL THEN
        DELETE FROM {schema}.subscription WHERE sid = id AND uri <> ALL (p_uris);
        INSERT INTO {schema}.subscription (sid, uri) SELECT id, u FROM unnest(p_uris) u ON CONFLICT DO NOTHING;
    END IF;
    IF grown <> 0 THEN
        PERFORM {schema}.count_{v}(grown, 0, 0, 0);
        SELECT sum(t.bytes) INTO r.bytes FROM {schema}.total t;
    END IF;
    IF held <> 0 THEN
        PERFORM {schema}.keep_{v}(whose, held);
        IF held > 0 AND (SELECT k.bytes FROM {schema}.kept k WHERE k.principal = whose) > p_most THEN
            -- Nothing of the commit is applied.
            RAISE 'too much is kept' USING ERRCODE = 'LMKPT';
        END IF;
    END IF;
    RETURN r;
END $$;

CREATE FUNCTION {schema}.forget_{v}(p_sid bigint, p_left text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s record;
    held_bytes bigint;
BEGIN
    DELETE FROM {schema}.session WHERE sid = p_sid RETURNING key, principal, numbers INTO s;
    DELETE FROM {schema}.field WHERE sid = p_sid;
    DELETE FROM {schema}.subscription WHERE sid = p_sid;
    DELETE FROM {schema}.work WHERE sid = p_sid;
    DELETE FROM {schema}.event WHERE sid = p_sid AND stream <> ALL (p_left);
    PERFORM {schema}.count_{v}(-s.numbers[{size}]::bigint, -1, 0, 0);
    DELETE FROM {schema}.area WHERE name = s.key AND due IS NULL RETURNING held INTO held_bytes;
    IF FOUND THEN
        DELETE FROM {schema}.cell WHERE area = s.key;
        DELETE FROM {schema}.op WHERE area = s.key;
    END IF;
    PERFORM {schema}.keep_{v}(s.principal, -s.numbers[{kept}]::bigint - coalesce(held_bytes, 0));
END $$;

CREATE FUNCTION {schema}.create_{v}(p_key text, p_principal bytea, p_numbers double precision[], p_more bytea, p_names bytea[], p_values bytea[])
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE id bigint;
BEGIN
    INSERT INTO {schema}.session (key, principal, numbers, more, hint, detached)
        VALUES (p_key, p_principal, p_numbers, p_more, p_numbers[{hint}], false) ON CONFLICT DO NOTHING RETURNING sid INTO id;
    IF id IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.field (sid, name, value) SELECT id, n, v FROM unnest(p_names, p_values) u(n, v);
    PERFORM {schema}.count_{v}(0, 1, 0, 0);
    RETURN true;
END $$;

-- verdict: 0 full, 1 open, 2 open, and the session `opened` was evicted for it. Close to a limit, commands come one after another.
CREATE FUNCTION {schema}.open_{v}(
    p_key text, p_principal bytea, p_numbers double precision[], p_more bytea, p_names bytea[], p_values bytea[],
    p_most bigint, p_own bigint, p_event text, p_now double precision,
    OUT verdict integer, OUT opened bytea, OUT variable bytea
) LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    id bigint;
    is_near boolean := false;
    count_all bigint;
    count_own bigint;
BEGIN
    verdict := 1;
    FOR attempt IN 1 .. 2 LOOP
        IF EXISTS (SELECT FROM {schema}.session WHERE key = p_key) THEN
            RETURN;
        END IF;
        SELECT sum(sessions) INTO count_all FROM {schema}.total;
        SELECT count(*) INTO count_own FROM {schema}.session WHERE p_own IS NOT NULL AND principal = p_principal;
        EXIT WHEN is_near OR (count_all + 100 < p_most AND count_own + 100 < coalesce(p_own, 1000));
        is_near := true;
        PERFORM FROM {schema}.gate WHERE name = 'sessions' FOR UPDATE;
    END LOOP;
    IF count_all >= p_most OR count_own >= p_own THEN
        verdict := 0;
        IF p_own IS NULL THEN
            RETURN;
        END IF;
        SELECT sid INTO id FROM {schema}.session WHERE principal = p_principal AND numbers[{running}] = 0 AND numbers[{readers}] = 0
            ORDER BY numbers[{touched}], sid LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        SELECT value INTO opened FROM {schema}.field WHERE sid = id AND name = 'r';
        SELECT value INTO variable FROM {schema}.field WHERE sid = id AND name = 'm';
        PERFORM {schema}.forget_{v}(id, '{}');
        INSERT INTO {schema}.closing (event, at, opened, variable, reason)
            VALUES (p_event, {schema}.clock_{v}(p_now), coalesce(opened, ''), coalesce(variable, ''), 'evicted');
        verdict := 2;
    END IF;
    PERFORM {schema}.create_{v}(p_key, p_principal, p_numbers, p_more, p_names, p_values);
END $$;

CREATE FUNCTION {schema}.remove_{v}(
    p_key text, p_exact double precision[], p_event text, p_reason text, p_opened bytea, p_variable bytea,
    p_left text[], p_heads bytea[], p_size bigint, p_most bigint, p_seconds double precision,
    p_streams text[], p_seqs bigint[], p_tags bigint[], p_data bytea[], p_now double precision
) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    id bigint;
    now_is double precision := {schema}.clock_{v}(p_now);
    gone record;
BEGIN
    SELECT sid INTO id FROM {schema}.session WHERE key = p_key AND numbers = p_exact FOR UPDATE;
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT FROM {schema}.closing WHERE event = p_event);
    END IF;
    IF p_streams IS NOT NULL THEN
        PERFORM {schema}.append_{v}(id, p_streams, p_seqs, p_tags, p_data);
    END IF;
    PERFORM {schema}.forget_{v}(id, p_left);
    INSERT INTO {schema}.closing (event, at, opened, variable, reason) VALUES (p_event, now_is, p_opened, p_variable, p_reason);
    IF cardinality(p_left) > 0 THEN
        INSERT INTO {schema}.lingering (sid, key, stream, head, bytes, until)
            SELECT id, p_key, s, h, p_size / cardinality(p_left), now_is + p_seconds FROM unnest(p_left, p_heads) u(s, h);
        -- The newest streams that fit stay.
        FOR gone IN
            SELECT l.n, l.sid, l.stream FROM {schema}.lingering l WHERE l.n IN
                (SELECT n FROM (SELECT n, sum(bytes) OVER (ORDER BY n DESC) AS total FROM {schema}.lingering) x WHERE total > p_most)
                FOR UPDATE SKIP LOCKED
        LOOP
            DELETE FROM {schema}.lingering WHERE n = gone.n;
            DELETE FROM {schema}.event WHERE sid = gone.sid AND stream = gone.stream;
        END LOOP;
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION {schema}.discard_{v}(p_key text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE id bigint;
BEGIN
    SELECT sid INTO id FROM {schema}.session WHERE key = p_key FOR UPDATE;
    IF FOUND THEN
        PERFORM {schema}.forget_{v}(id, '{}');
    END IF;
END $$;

-- State

CREATE FUNCTION {schema}.forget_area_{v}(p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE s record;
BEGIN
    DELETE FROM {schema}.area WHERE name = p_name RETURNING principal, held INTO s;
    IF FOUND THEN
        DELETE FROM {schema}.cell WHERE area = p_name;
        DELETE FROM {schema}.op WHERE area = p_name;
        PERFORM {schema}.keep_{v}(s.principal, -s.held);
    END IF;
END $$;

CREATE FUNCTION {schema}.open_area_{v}(p_name text, p_principal bytea, p_is_own boolean, p_ttl double precision, p_most bigint, p_of_one bigint, p_now double precision)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    now_is double precision := {schema}.clock_{v}(p_now);
    whose bytea;
BEGIN
    -- Areas begin one after another, so that their limits are exact.
    PERFORM FROM {schema}.gate WHERE name = 'areas' FOR UPDATE;
    IF EXISTS (SELECT FROM {schema}.area WHERE name = p_name AND due <= now_is) THEN
        PERFORM {schema}.forget_area_{v}(p_name);
    END IF;
    UPDATE {schema}.area SET due = now_is + ttl WHERE name = p_name AND due IS NOT NULL AND principal = p_principal RETURNING principal INTO whose;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM {schema}.area WHERE name = p_name)
        OR (p_of_one IS NOT NULL AND (SELECT count(*) FROM {schema}.area WHERE due > now_is AND principal = p_principal AND NOT own) >= p_of_one)
        OR (SELECT count(*) FROM {schema}.area WHERE due > now_is AND own = p_is_own) >= p_most THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.area (name, principal, own, ttl, due) VALUES (p_name, p_principal, p_is_own, p_ttl, now_is + p_ttl);
    RETURN true;
END $$;

-- Replace the state of a session or area if its head is the known one, these fields are absent, and none of the changes was made before.
-- 0 gone, 1 done, 2 it differs, 3 its principal may not keep so much.
CREATE FUNCTION {schema}.write_state_{v}(
    p_area text, p_known bytea, p_absent bytea[], p_head bytea, p_fields bytea[], p_values bytea[], p_versions bigint[], p_delete bytea[],
    p_ops text[], p_results text[], p_kept_ops bigint, p_grows bigint, p_most bigint, p_now double precision
) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE s record;
BEGIN
    SELECT principal, head, ops INTO s FROM {schema}.area
        WHERE name = p_area AND (due IS NULL OR due > {schema}.clock_{v}(p_now)) FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO {schema}.area (name, principal) SELECT key, principal FROM {schema}.session WHERE key = p_area FOR KEY SHARE
            ON CONFLICT DO NOTHING;
        SELECT principal, head, ops INTO s FROM {schema}.area WHERE name = p_area AND due IS NULL FOR UPDATE;
        IF NOT FOUND THEN
            RETURN 0;
        END IF;
    END IF;
    IF s.head <> p_known OR EXISTS (SELECT FROM {schema}.op WHERE area = p_area AND op = ANY (p_ops))
        OR EXISTS (SELECT FROM {schema}.cell WHERE area = p_area AND digest IN (SELECT sha256(f) FROM unnest(p_absent) f)) THEN
        RETURN 2;
    END IF;
    PERFORM {schema}.keep_{v}(s.principal, p_grows);
    IF p_grows > 0 AND (SELECT bytes FROM {schema}.kept WHERE principal = s.principal) > p_most THEN
        PERFORM {schema}.keep_{v}(s.principal, -p_grows);
        RETURN 3;
    END IF;
    UPDATE {schema}.area SET head = p_head, held = held + p_grows, ops = s.ops + cardinality(p_ops) WHERE name = p_area;
    INSERT INTO {schema}.cell (area, field, value, version) SELECT p_area, f, v, n FROM unnest(p_fields, p_values, p_versions) u(f, v, n)
        ON CONFLICT (area, digest) DO UPDATE SET value = excluded.value, version = excluded.version;
    IF cardinality(p_delete) > 0 THEN
        DELETE FROM {schema}.cell WHERE area = p_area AND digest IN (SELECT sha256(f) FROM unnest(p_delete) f);
    END IF;
    INSERT INTO {schema}.op (area, n, op, result)
        SELECT p_area, s.ops + n, o, r FROM unnest(p_ops, p_results) WITH ORDINALITY u(o, r, n);
    DELETE FROM {schema}.op WHERE area = p_area AND n <= s.ops + cardinality(p_ops) - p_kept_ops;
    RETURN 1;
END $$;

-- Tasks

-- Replace a task that has still the version p_known (0: there is none), within the bounds: number of tasks, own ones, bytes, own bytes.
-- 0 done, 1 the version differs, 2 no room, 3 the owner is dead.
CREATE FUNCTION {schema}.swap_task_{v}(
    p_key text, p_known bigint, p_principal bytea, p_name bytea, p_value bytea, p_version bigint, p_expires double precision, p_owner text,
    p_most bigint[], p_lives text, p_now double precision
) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    t record;
    s record;
    own record;
    grows bigint;
BEGIN
    IF p_known = 0 THEN
        -- Tasks begin one after another, so that their limits are exact.
        PERFORM FROM {schema}.gate WHERE name = 'tasks' FOR UPDATE;
        PERFORM {schema}.sweep_tasks_{v}({schema}.clock_{v}(p_now));
    END IF;
    SELECT version, principal, octet_length(value) AS size INTO t FROM {schema}.task WHERE key = p_key FOR UPDATE;
    IF coalesce(t.version, 0) <> p_known OR coalesce(t.principal, p_principal) <> p_principal THEN
        RETURN 1;
    ELSIF p_known = 0 AND p_lives IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.lease WHERE owner = p_lives AND until > 0) THEN
        RETURN 3;
    END IF;
    grows := octet_length(p_value) - coalesce(t.size, 0);
    IF p_most IS NOT NULL THEN
        SELECT sum(tasks) AS tasks, sum(task_bytes) AS bytes INTO s FROM {schema}.total;
        SELECT count(*) AS tasks, coalesce(sum(octet_length(value)), 0) AS bytes INTO own FROM {schema}.task WHERE principal = p_principal;
        IF p_known = 0 AND (s.tasks >= p_most[1] OR own.tasks >= p_most[2])
            OR s.bytes + greatest(grows, 0) > p_most[3] OR own.bytes + greatest(grows, 0) > p_most[4] THEN
            RETURN 2;
        END IF;
    END IF;
    INSERT INTO {schema}.task VALUES (p_key, p_principal, p_name, p_version, p_expires, p_owner, p_value) ON CONFLICT (key) DO UPDATE
        SET value = excluded.value, version = excluded.version, expires = excluded.expires, owner = excluded.owner;
    PERFORM {schema}.count_{v}(0, 0, (p_known = 0)::integer, grows);
    RETURN 0;
END $$;

CREATE FUNCTION {schema}.sweep_tasks_{v}(p_now double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t record;
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.task WHERE key IN (SELECT key FROM {schema}.task WHERE expires <= p_now ORDER BY expires LIMIT 1000 FOR UPDATE SKIP LOCKED)
        RETURNING octet_length(value) AS size
    ) SELECT count(*) AS tasks, coalesce(sum(size), 0) AS bytes INTO t FROM gone;
    IF t.tasks > 0 THEN
        PERFORM {schema}.count_{v}(0, 0, -t.tasks, -t.bytes::bigint);
    END IF;
END $$;

-- Replicas

CREATE FUNCTION {schema}.renew_{v}(
    p_replica text, p_owner text, p_seconds double precision, p_now double precision,
    OUT incarnation bigint, OUT format integer, OUT now_is double precision
) LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
#variable_conflict use_column
BEGIN
    now_is := {schema}.clock_{v}(p_now);
    SELECT a.format INTO format FROM {schema}.about a;
    UPDATE {schema}.lease SET since = CASE WHEN abs(now_is - renewed) > p_seconds / 2 THEN now_is ELSE since END, renewed = now_is,
        seconds = p_seconds, until = now_is + p_seconds WHERE owner = p_owner AND until > 0;
    IF FOUND THEN
        incarnation := substring(p_owner FROM '[0-9]+$')::bigint;
        RETURN;
    END IF;
    UPDATE {schema}.about SET incarnations = incarnations + 1 RETURNING incarnations INTO incarnation;
    -- An older lease of this name belongs to another process with the same name.
    UPDATE {schema}.lease SET until = 0, died = now_is WHERE replica = p_replica AND until > 0;
    INSERT INTO {schema}.lease VALUES (p_replica || '.' || incarnation, p_replica, now_is + p_seconds, now_is, now_is, p_seconds);
END $$;

-- True if the incarnation has a lease, or never had one. Writes a row, as new work does.
CREATE FUNCTION {schema}.prove_{v}(p_lives text, p_now double precision) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
BEGIN
    INSERT INTO {schema}.notice VALUES ('', 0, '') ON CONFLICT (replica) DO UPDATE SET until = 0;
    RETURN p_lives IS NULL OR EXISTS (SELECT FROM {schema}.lease WHERE owner = p_lives AND until > {schema}.clock_{v}(p_now));
END $$;

-- Declare incarnations dead whose lease has ended, if this one may; return the dead ones. See `replicas.py`.
CREATE FUNCTION {schema}.dead_{v}(p_owner text, p_kept double precision, p_now double precision) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    now_is double precision := {schema}.clock_{v}(p_now);
    length double precision;
BEGIN
    SELECT seconds INTO length FROM {schema}.lease
        WHERE owner = p_owner AND until > 0 AND now_is - since >= seconds AND abs(now_is - renewed) <= seconds / 2;
    IF FOUND THEN
        -- A lease that was renewed in the future: the clock was set back, and its owner has not renewed since then.
        UPDATE {schema}.lease SET until = 0, died = now_is WHERE owner IN (
            SELECT owner FROM {schema}.lease WHERE until > 0 AND (until <= now_is OR renewed - now_is > length / 2) FOR UPDATE SKIP LOCKED);
    END IF;
    -- A commit that saw the lease may be a little later than its end: the dead are asked for their work for a while.
    DELETE FROM {schema}.lease l WHERE l.until = 0 AND abs(now_is - l.died) > p_kept AND NOT EXISTS (SELECT FROM {schema}.work WHERE owner = l.owner);
    RETURN QUERY SELECT owner FROM {schema}.lease WHERE until = 0;
END $$;

CREATE FUNCTION {schema}.forward_{v}(p_replica text, p_name text, p_payload bytea, p_seconds double precision, p_most bigint, p_bytes bigint, p_now double precision)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE now_is double precision := {schema}.clock_{v}(p_now);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.lease WHERE replica = p_replica AND until > now_is)
        OR (NOT EXISTS (SELECT FROM {schema}.inbox WHERE replica = p_replica AND name = p_name)
            AND (SELECT count(*) >= p_most OR sum(octet_length(payload)) + octet_length(p_payload) > p_bytes
                FROM {schema}.inbox WHERE replica = p_replica AND taken IS NULL)) THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.inbox (replica, name, expires, payload) VALUES (p_replica, p_name, now_is + p_seconds, p_payload) ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

CREATE FUNCTION {schema}.announce_{v}(p_name text, p_event bytea, p_now double precision) RETURNS void LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE number bigint;
BEGIN
    -- The row of `about` is locked: announcements become visible in the order of their numbers.
    UPDATE {schema}.about SET news = news + 1 RETURNING news INTO number;
    IF EXISTS (SELECT FROM {schema}.news WHERE name = p_name) THEN
        UPDATE {schema}.about SET news = news - 1;
    ELSE
        INSERT INTO {schema}.news VALUES (number, p_name, {schema}.clock_{v}(p_now), p_event);
    END IF;
END $$;

CREATE FUNCTION {schema}.late_closings_{v}(p_seconds double precision, p_most bigint, p_now double precision)
RETURNS TABLE (event text, opened bytea, variable bytea, reason text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE now_is double precision := {schema}.clock_{v}(p_now);
BEGIN
    RETURN QUERY UPDATE {schema}.closing c SET at = now_is WHERE n IN (
        SELECT n FROM {schema}.closing WHERE at <= now_is - p_seconds ORDER BY n LIMIT p_most FOR UPDATE SKIP LOCKED)
        RETURNING c.event, c.opened, c.variable, c.reason;
END $$;

-- Forget everything that is no session and whose time is over.
CREATE FUNCTION {schema}.sweep_{v}(p_news_seconds double precision, p_news bigint, p_closings bigint, p_now double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_is double precision := {schema}.clock_{v}(p_now);
    gone record;
BEGIN
    PERFORM {schema}.sweep_tasks_{v}(now_is);
    FOR gone IN SELECT name FROM {schema}.area WHERE due <= now_is ORDER BY due LIMIT 1000 FOR UPDATE SKIP LOCKED LOOP
        PERFORM {schema}.forget_area_{v}(gone.name);
    END LOOP;
    FOR gone IN DELETE FROM {schema}.lingering WHERE n IN (SELECT n FROM {schema}.lingering WHERE until <= now_is FOR UPDATE SKIP LOCKED)
        RETURNING sid, stream LOOP
        DELETE FROM {schema}.event WHERE sid = gone.sid AND stream = gone.stream;
    END LOOP;
    DELETE FROM {schema}.notice WHERE replica IN (SELECT replica FROM {schema}.notice WHERE until <= now_is FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.inbox WHERE n IN (SELECT n FROM {schema}.inbox WHERE expires <= now_is LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.secret WHERE name IN (SELECT name FROM {schema}.secret WHERE until <= now_is FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.news WHERE n IN (SELECT n FROM {schema}.news
        WHERE at < now_is - p_news_seconds OR n <= (SELECT max(n) FROM {schema}.news) - p_news FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.closing WHERE n IN (SELECT n FROM {schema}.closing
        WHERE n <= (SELECT max(n) FROM {schema}.closing) - p_closings FOR UPDATE SKIP LOCKED);
END $$;
