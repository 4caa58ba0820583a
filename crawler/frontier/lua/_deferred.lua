-- Deferred URLs: kept, but not handed out. Those deferred by a rule or a budget have blocks of their own, the row
-- QUEUE|reason. A queue can also be stopped as a whole: stop is the reason, in its record and in the hash stops.
-- URLs of runs are never deferred one by one: a run ends, so they are refused instead (see _add.lua).
-- Deferred URLs are not pending: deferring a URL counts as done, releasing it as added; meta's deferrals and released count
-- both. They only grow, like all from which the end of a crawl is read. So a crawl ends with deferred URLs, loses none,
-- and begins again when some are released. A queue that is stopped as 'paused' keeps its URLs pending: a paused crawl
-- waits.
--
-- A row has blocks like a queue, with the same members and scores, so its blocks may be in files, and go back to the
-- queue without being read. What people release stays released: the record of the queue notes the reason (free),
-- and `defer` puts such URLs back. A budget of URLs counts what was ever met of a queue; what comes beyond it is
-- deferred, whatever its score. One of pages counts results of any status and the claims that are out, so it is never
-- exceeded.
-- URLs that are too deep are in rows QUEUE|depth:N, one for each depth, in the order of fingerprints and with the member
-- 'FINGERPRINT SCORE MEMBER': when a shorter path to one is found, only its fingerprint is known.
local row_name, row_of, defer, defer_one, note_released, room_beside, take_deep, note_runs
local put_pending, put_back, release_best, stop_queue, start_queue
do
  local PAUSED, BEYOND = 'paused', 'crawl:urls'

  function row_name(queue, reason) return queue .. '|' .. reason end

  -- The record of a row: it has URLs and blocks, and is deleted with its last URL.
  function row_of(queue, reason)
    local row = record_of(row_name(queue, reason))
    row.is_row = true
    return row
  end

  -- Count deferred URLs; those of the crawl's own budget of URLs also separately.
  local function note_deferred(queue, reason, n)
    enter(State.DEFERRED, nil, {reason = Losses.deferred_for(reason), example = queue}, n)
    if reason == BEYOND then count(ctx.total, 'beyond', n) end
    call('HINCRBY', ctx.prefix .. 'deferred', row_name(queue, reason), n)
  end

  -- Put entries of a queue into its row: {score, member, ...}, scores as text.
  function defer(queue, reason, entries)
    put(row_of(queue, reason), entries)
    note_deferred(queue, reason, #entries / 2)
  end

  -- Put one URL into its row; the reason DEPTH means too deep.
  function defer_one(queue, reason, score, member, fingerprint, depth)
    if reason ~= DEPTH then return defer(queue, reason, {score, member}) end
    defer(queue, DEPTH .. ':' .. depth, {string.sub(fingerprint, -9), fingerprint .. ' ' .. score .. ' ' .. member})
  end

  -- Score (text) and member in the queue, of an entry of a row.
  local function requeued_deferred(reason, score, member)
    if not is_deep(reason) then return text_of(tonumber(score)), member end
    return string.match(member, '^%S+ (%S+) (.*)$')
  end

  function note_released(queue, reason, n)
    local name, none = row_name(queue, reason), call('HINCRBY', ctx.prefix .. 'deferred', row_name(queue, reason), -n) == 0
    if none then call('HDEL', ctx.prefix .. 'deferred', name) end
    leave(State.DEFERRED, nil, {reason = Losses.deferred_for(reason), example = none and queue or nil}, n)
    if reason == BEYOND then count(ctx.total, 'beyond', -n) end
  end

  -- How many of the URLs deferred for a reason may be released, so that at most taken_in_max URLs of the queue are admitted.
  function room_beside(r, reason, taken_in_max)
    local deferred = tonumber(call('HGET', ctx.prefix .. 'deferred', row_name(r.queue, reason)) or nil) or 0
    local met = reason == Requisites.BEYOND and (r[MORE].requisites or 0) or Users.own_urls(r)
    return math.min(deferred, taken_in_max - (met - deferred))
  end

  -- Take a URL that is deferred as too deep out of its row. Returns its member, nil when it is not there.
  function take_deep(queue, depth, fingerprint)
    local reason = DEPTH .. ':' .. depth
    if call('HEXISTS', ctx.prefix .. 'deferred', row_name(queue, reason)) == 0 then return nil end
    local row, at = row_of(queue, reason), string.sub(fingerprint, -9)
    local id = call('ZRANGEBYSCORE', index_of(row.queue), at, '+inf', 'LIMIT', 0, 1)[1]
    local key = id and block_of(row.queue, id) or head_of(row.queue)
    for _, stored in ipairs(call('ZRANGEBYSCORE', key, at, at)) do
      if string.sub(stored, 1, #fingerprint + 1) == fingerprint .. ' ' then
        remove_url(row.queue, id, stored)
        add_to(row, N, -1)
        promote(row)
        note_released(queue, reason, 1)
        local _, member = requeued_deferred(reason, '', stored)
        return member
      end
    end
  end

  -- Why all URLs of a user in a queue are deferred; nil when they are pending.
  function Stops.deferring(r, user)
    local reason = r[MORE].stop
    if reason == PAUSED or not Stops.hold(r, user) then return nil end
    return reason
  end

  -- j:<queue>: hash of runs -> how many of their URLs are in the queue's blocks, because a queue is stopped as a whole.
  local function runs_key(queue) return ctx.prefix .. 'j:' .. queue end

  -- URLs of runs enter a queue's blocks (n is 1) or leave them (-1). While the queue is stopped they count as deferred. The list
  -- has other values between the members; the first member is at `first`.
  function note_runs(r, list, first, n)
    local changes
    for i = first, #list, 2 do
      local run = run_of(list[i])
      if run then
        changes = changes or {}
        changes[run] = (changes[run] or 0) + n
      end
    end
    if not changes then return end
    for run, change in pairs(changes) do
      if call('HINCRBY', runs_key(r.queue), run, change) == 0 then call('HDEL', runs_key(r.queue), run) end
      if Stops.deferring(r, Stops.RUNS) then count_run(run, RunCounts.deferred, change) end
    end
  end

  -- The URLs of runs that are in a queue are deferred (sign is 1), or not any more (-1), because it was stopped or started.
  function Stops.defer_runs(r, sign)
    local key = runs_key(r.queue)
    local runs = call('HGETALL', key)
    for i = 1, #runs, 2 do count_run(runs[i], RunCounts.deferred, sign * tonumber(runs[i + 1])) end
  end

  -- Count n URLs of a user that came (back) into their queue, and wake it.
  local function note_pending(r, user, n, default_delay_ms)
    local reason = Stops.deferring(r, user)
    if reason then note_deferred(r.queue, reason, n) end
    if default_delay_ms then wake(r, default_delay_ms) end
  end

  function put_pending(r, user, entries, default_delay_ms)
    put(Users.place_in(r, user), entries)
    if ctx.has_runs then note_runs(r, entries, 2, 1) end
    note_pending(r, user, #entries / 2, default_delay_ms)
  end

  -- Put URLs of claims and retries back: they were pending before.
  function put_back(r, user, entries, default_delay_ms)
    put_pending(r, user, entries, default_delay_ms)
    count(ctx.total, 'moves', 1)
  end

  -- Release a row's next block that is in a file: it becomes a block of the queue without being read.
  local function release_block(r, row, n)
    local stub, highest = unpack(call('ZREVRANGE', index_of(row.queue), 0, 0, 'WITHSCORES'))
    local place, urls = string.match(stub or '', '^%d+( .* (%d+))$')
    urls = tonumber(urls)
    if not urls or urls > n then return 0 end
    call('ZREM', index_of(row.queue), stub)
    call('ZADD', index_of(r.queue), highest, next_id(r) .. place)
    add_to(row, N, -urls)
    add_to(r, N, urls)
    count_spilled(row.queue, -urls)
    count_spilled(r.queue, urls)
    look_ahead(r.queue, 0)
    return urls
  end

  -- Release at most the n best URLs that are deferred for a reason into their queue. Returns how many: none when the next ones
  -- are a block in a file with more than n URLs. Only the crawl itself has deferred URLs.
  function release_best(r, reason, n, default_delay_ms)
    local row, entries = row_of(r.queue, reason), {}
    if row[N] == 0 then return 0 end
    local taken = take(row, n)
    for i = 1, #taken, 2 do entries[i], entries[i + 1] = requeued_deferred(reason, taken[i + 1], taken[i]) end
    local released = #entries / 2
    if released > 0 then put(r, entries) else released = release_block(r, row, n) end
    if released == 0 then return 0 end
    note_released(r.queue, reason, released)
    note_pending(r, '', released, default_delay_ms)
    return released
  end

  -- The URLs that a stop defers are pending again.
  function Stops.finish(r)
    local reason = Stops.deferring(r, '')
    local n = reason and Stops.deferred_by(r, reason) or 0
    if n > 0 then note_released(r.queue, reason, n) end
    if Stops.deferring(r, Stops.RUNS) then Stops.defer_runs(r, -1) end
    count(ctx.total, 'moves', 1)
  end

  function stop_queue(r, reason, default_delay_ms)
    Stops.finish(r)
    set_more(r, 'stop', reason)
    call('HSET', ctx.prefix .. 'stops', r.queue, reason)
    local n = reason ~= PAUSED and Stops.deferred_by(r, reason) or 0
    if n > 0 then note_deferred(r.queue, reason, n) end
    if reason == PAUSED then return end
    if Stops.BUDGETS[reason] then wake(r, default_delay_ms) else Stops.defer_runs(r, 1) end
    if r[MORE].aside then -- the next claim puts them back, see _aside.lua
      local origins = ctx.prefix .. 'aside:' .. r.queue
      if Stops.BUDGETS[reason] then call('ZUNIONSTORE', origins, 1, origins, 'WEIGHTS', 0) end
      call('ZADD', ctx.prefix .. 'aside', 0, r.queue)
    end
  end

  function start_queue(r, default_delay_ms)
    Stops.finish(r)
    set_more(r, 'stop', nil)
    call('HDEL', ctx.prefix .. 'stops', r.queue)
    wake(r, default_delay_ms)
  end
end
