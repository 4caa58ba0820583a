#!lua flags=allow-oom
-- claim: hand the best URLs of due queues to the owner. Needs the fence. First puts expired claims, due retries and
-- scheduled URLs that are due into their queues, and moves the records of queues that have long been idle to their stores.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {request id (session-number), engine run id, URLs max, URLs per queue max,
--       claim ahead (ms), visibility timeout (ms), default delay (ms), claims out per queue max, fetch budgets of a queue:
--       pages, bytes (0: none), lead (ms): how long before its time a queue without a borrower is handed out, weights of
--       users that have another one than 1 (flat: user, weight), wall time (ms): what is scheduled until then is due,
--       until the next probe of a silent origin, if nothing is heard of this one (ms), at most so many URLs that are of no user}
-- returns {'FENCED'} | {'RECOVER'} | {'OK', next due (ms) or -1, flat batch, flat deaths, some queues and rows whose next block
--       has to be brought back from its file, flat waits: boost, user, and when the first of their queues is due (-1: none
--       waits), for each boost in use and 0, and each user with URLs and ''; empty when there are neither boosts nor users, flat
--       probes: queue, origin, since when it has been silent (ms, -1: not known to be), of origins whose URLs went back into the queue,
--       when the next fetch is due (ms, -1: none is), for people: the first due time may be that of other work}.
--       Both due times are earlier by the lead.
--       The batch repeats row, domain, delay (ms, -1 unknown), when its next request may start (ms; 0: now), how many of its URLs
--       are set aside, n, then n times token, score, member, origin ('' when the member has it). A token is 'epoch.request.serial'. A row is a queue,
--       or QUEUE|@USER; where the queue has rows, '|' follows, and the users that have URLs in it now, a comma behind each.
--       Deaths are fingerprint, 'deaths session' of URLs that were being processed when a process died.
local SHORT_MS = 1000
local READ_AT_ONCE = 16 -- records of due queues: the first ones may already fill the batch
local session, epoch, now, request, per_queue, ahead, visibility, default_delay, out_max, pages_max, bytes_max, lead, probe_ms, own_left
local hold, has_spilled, batch, taken, got

-- Put an expired claim or a due retry back into its queue. A delivery whose owner vanished is counted. One of the calling
-- session is not: it did not die of it, but acquired its leases again after the engine had been silent.
local function requeue(token, is_expired)
  local packed = call('HGET', ctx.prefix .. 'u', token)
  if not packed then return end
  local score, row, _, member = unpack_record(packed)
  local queue, user = Users.split(row)
  local r = record_of(queue)
  call('HDEL', ctx.prefix .. 'u', token)
  leave(is_expired and State.CLAIMED or State.RETRYING, r)
  if is_expired then
    if string.match(token, '^%d+%.(.*)%-%d+%.%d+$') ~= session then score = text_of(with_delivery(tonumber(score))) end
    count(ctx.total, 'expired', 1)
  end
  put_back(r, user, {score, member}, default_delay)
end

-- The lowest score of a zset, nil for an empty one.
local function first_in(key) return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or nil) end
local function first_of(name) return first_in(ctx.prefix .. name) end

-- Put up to 64 due tokens of a zset back. Returns when the next one is due.
local function requeue_due(name, is_expired)
  local first = first_of(name)
  if not first or first > now then return first end
  for _, token in ipairs(call('ZRANGEBYSCORE', ctx.prefix .. name, '-inf', now, 'LIMIT', 0, 64)) do
    call('ZREM', ctx.prefix .. name, token)
    requeue(token, is_expired)
  end
  return first_of(name)
end

-- Put up to 64 scheduled URLs whose wall time has come into their queues. Returns when the next one is due (wall time, ms).
local function show_due(wall)
  local first = first_of('at')
  if not first or first > wall then return first end
  local due, queues = {}, {}
  for i, stored in ipairs(call('ZRANGEBYSCORE', ctx.prefix .. 'at', '-inf', wall, 'LIMIT', 0, 64)) do
    local score, queue, member = unpack_scheduled(stored)
    due[i], queues[i] = {stored, queue, {score, member}}, queue
  end
  read_queues(queues)
  for _, one in ipairs(due) do
    local r = record_of(one[2])
    unschedule(r, one[1])
    put_back(r, '', one[3], default_delay) -- no run schedules any
  end
  return first_of('at')
end

local function put_batch(a, b, c, d)
  local n = #batch
  batch[n + 1], batch[n + 2], batch[n + 3], batch[n + 4] = a, b, c, d
end

local function put_queue(r, row, n)
  local start, name = due_of(r[NEXT], delay_of(r) or default_delay, hold), row
  if row ~= r.queue or Users.are_in(r) then -- in a repeated batch, a user may have nothing left in the queue
    name = name .. '|'
    if r[N] > 0 then name = name .. table.concat(Users.waiting_in(r), ',') .. ',' end
  end
  put_batch(name, r[MORE].domain or r.queue, r[DELAY], start > now and string.format('%d', start) or 0)
  batch[#batch + 1], batch[#batch + 2] = r[MORE].aside or 0, n
end

-- The call was repeated because its reply was lost: return the same batch again, without claims that expired since.
local function repeat_batch()
  local prefix, again = epoch .. '.' .. request .. '.', {}
  for _, token in ipairs(call('ZRANGE', ctx.prefix .. 'x', 0, -1)) do
    if string.sub(token, 1, #prefix) == prefix then
      local score, row, _, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
      local serial = tonumber(string.sub(token, #prefix + 1))
      again[#again + 1] = {serial = serial, token = token, row = row, score = score, member = member}
    end
  end
  table.sort(again, function(one, other) return one.serial < other.serial end)
  local first = 1
  while first <= #again do
    local row, last = again[first].row, first
    while again[last + 1] and again[last + 1].row == row do last = last + 1 end
    local queue = Users.split(row)
    put_queue(record_of(queue), row, last - first + 1)
    for i = first, last do
      local one = again[i]
      put_batch(one.token, one.score, one.member, listed_origin(queue, one.member))
    end
    first = last + 1
  end
end

-- When a request on this queue may start (ms), with respect to borrowers.
local function start_of(r)
  local known, waiter = delay_of(r), r[MORE].waiter
  local delay = known or default_delay
  local due = due_of(r[NEXT], delay, hold)
  if known == 0 or r[OUT] ~= 0 then return due end
  if r[MORE].borrower then return math.max(due, borrowed_until(r, now, delay)) end
  if waiter and waiter ~= GRANTED and due <= now then return left_until(r, now) end
  return due
end

-- The latest start time with which a queue is handed out.
local function horizon_of(r)
  local waiter = r[MORE].waiter
  return (r[MORE].borrower or (waiter and waiter ~= GRANTED)) and now or now + lead
end

-- How many URLs a due queue hands out. With an unknown delay it is one: the Crawl-delay may be longer than our default. Where
-- many end without an answer, it is more: they take no turns.
local function allowance(r, left)
  local n, delay = 1, delay_of(r)
  if delay then n = delay > 0 and math.max(1, math.floor(ahead / delay)) or per_queue end
  if r[MORE].quick then n = math.max(n, math.min(r[MORE].quick, math.ceil(left / 2))) end
  return math.min(n, per_queue, left, math.max(0, out_max - r[OUT]))
end

-- How many more of the crawl's own URLs of a queue its budgets allow now, with claims out counted as pages; and which budget is
-- used up, if any. Pages of runs do not count.
local function budget_left(r)
  if bytes_max > 0 and r[BYTES] - (r[MORE].run_bytes or 0) >= bytes_max then return 0, 'bytes' end
  if pages_max == 0 then return math.huge end
  local pages = r[S2] - (r[MORE].run_fetched or 0)
  for _, class in ipairs({'s1', 's3', 's4', 's5'}) do pages = pages + (r[MORE][class] or 0) end
  return math.max(0, pages_max - pages - r[OUT]), pages >= pages_max and 'pages' or nil
end

-- The boosts in use, highest first, with 0 for all queues without one.
local function boosts()
  local found, listed = {}, false
  for word in string.gmatch(meta().boosts or '', '%S+') do
    local boost = tonumber(word)
    if boost < 0 and not listed then found[#found + 1], listed = 0, true end
    found[#found + 1] = boost
  end
  if not listed then found[#found + 1] = 0 end
  return found
end

-- Take up to n of the best URLs of a row, into the list `taken` of {row, {member, score, ...}}. Returns how many.
local function take_row(row, n)
  local best = take(row, n)
  if has_spilled then look_ahead(row.queue, now) end
  local some = #best / 2
  if some == 0 then return 0 end
  local r = row.parent or row
  if r == row then own_left = own_left - some end
  note_runs(r, best, 1, -1)
  if row.taken then
    for _, value in ipairs(best) do row.taken[#row.taken + 1] = value end
  else
    row.taken = best
    taken[#taken + 1] = {row, best}
  end
  return some
end

-- The same of a queue in which users have URLs: they take turns. Counts in `got` who got how many. own: at most so many of the
-- crawl itself.
local function take_in_turn(r, n, before, own)
  local turns, sum = r[MORE].turns, 0
  local function room(user, most) return user == '' and math.min(most, own - (got[''] or 0)) or most end
  local users = {}
  for _, user in ipairs(before) do
    if room(user, 1) > 0 then users[#users + 1] = user end
  end
  if #users == 0 then return 0 end
  if #users == 1 and not turns then
    got[users[1]] = take_row(Users.place_in(r, users[1]), room(users[1], n))
    return got[users[1]]
  end
  turns = turns or {}
  while n > sum and #users > 0 do
    local user = Turns.next_of(turns, users)
    local row = Users.place_in(r, user)
    local some = take_row(row, room(user, #users == 1 and n - sum or 1))
    Turns.advance(turns, user)
    Turns.charge(turns, user, some)
    got[user], sum = (got[user] or 0) + some, sum + some
    if some == 0 or Users.own_n(row) == 0 or room(user, 1) == 0 then Turns.leave(users, user) end
  end
  set_more(r, 'turns', turns)
  return sum
end

-- How many of the next n of a queue's own URLs come before its first requisite.
function Requisites.pages_before(r, n)
  local best = call('ZREVRANGE', head_of(r.queue), 0, n - 1, 'WITHSCORES')
  for i = 2, #best, 2 do
    if tonumber(best[i]) < Requisites.SCORES_BELOW then return i / 2 - 1 end
  end
  return n
end

-- Take URLs of a queue that may be due. Requisites are taken one by one, and not ahead of their turn: a page that is found
-- meanwhile goes first. Returns how many, whether it is to sleep, or since when it is due later. So each queue either
-- gives URLs or gets another place, and others come next. `users`: those in the queue, if it has rows.
local function visit(r, left, users)
  local start = start_of(r)
  local has_delay = delay_of(r) ~= 0
  if has_delay and r[OUT] ~= 0 then return 0, true end -- the end of its last claim wakes it
  if start > horizon_of(r) then return 0, false, start end
  local most = allowance(r, left)
  if has_delay and r[MORE].requisites and most > 0 then
    most = Requisites.pages_before(r, most)
    if most == 0 and start > now then return 0, false, start + lead end -- claimers come when it is due less that
    most = math.max(1, most)
  end
  local own, used_up = budget_left(r)
  if used_up and r[MORE].stop ~= used_up then stop_queue(r, used_up) end
  own = Stops.hold(r, '') and 0 or math.min(own, own_left) -- stopped, though this claim's budget may be higher
  local n, some = math.min(most, users and left or own), 0
  if n > 0 then
    some = users and take_in_turn(r, n, users, own) or take_row(r, n)
  elseif has_spilled then
    look_ahead(r.queue, now)
  end
  if some > 0 then
    enter(State.CLAIMED, r, nil, some)
    if r[MORE].waiter then
      set_more(r, 'waiter', nil)
      set_more(r, 'borrower_seen', nil)
    end
  end
  return some, has_delay or r[OUT] >= out_max or r[N] == 0 or some == 0
end

local function note(moves, ready, at, queue)
  local list = moves[ready]
  if not list then
    list = {}
    moves[ready] = list
  end
  if at then list[#list + 1] = at end
  list[#list + 1] = queue
end

-- The same of a queue in which users have URLs, once a call: its place may change in the ready sets of all of them.
local function visit_shared(r, left, asleep, later)
  if r.is_visited then return 0 end
  r.is_visited = true
  local before, boost = Users.waiting_in(r), r[MORE].boost
  local some, is_asleep, start = visit(r, left, before)
  for _, user in ipairs(before) do
    local ready, has_none = ready_at(boost, user), user == '' and some == 0 and own_left <= 0
    if has_none then -- it keeps its place
    elseif start and not Stops.hold(r, user) then
      note(later, ready, start, r.queue)
    elseif start or is_asleep or call('EXISTS', head_of(Users.row_name(r.queue, user))) == 0 then
      note(asleep, ready, nil, r.queue)
    end
  end
  return some
end

-- Take the best URLs of the due queues of one boost: from the queues of each user when it is its turn. Returns how many more
-- URLs and queues this call may take.
local function take_due(boost, users, turns, left, looks)
  local later, asleep, due, places, waiting = {}, {}, {}, {}, {}
  for _, user in ipairs(users) do
    due[user] = call('ZRANGEBYSCORE', ready_at(boost, user), '-inf', now + lead, 'LIMIT', 0, looks)
    if #due[user] > 0 then waiting[#waiting + 1], places[user] = user, 1 end
  end
  local at_once = math.ceil(READ_AT_ONCE / math.max(1, #waiting))
  while left > 0 and looks > 0 and #waiting > 0 do
    local user = Turns.next_of(turns, waiting)
    if user == '' and own_left <= 0 then Turns.leave(waiting, user) end -- its queues keep their places
    if user ~= '' or own_left > 0 then
      local queues, i = due[user], places[user]
      if (i - 1) % at_once == 0 then read_queues({unpack(queues, i, math.min(i + at_once - 1, #queues))}) end
      local r, some = record_of(queues[i]), 0
      if not r.is_visited then looks = looks - 1 end
      Turns.advance(turns, user)
      if Users.are_in(r) then
        some = visit_shared(r, left, asleep, later)
        for one, n in pairs(got) do
          if n > 0 then Turns.charge(turns, one, n) end
          got[one] = nil
        end
      else
        local is_asleep, start
        some, is_asleep, start = visit(r, left)
        local ready = ready_at(boost, user)
        if start then note(later, ready, start, r.queue) elseif is_asleep then note(asleep, ready, nil, r.queue) end
        Turns.charge(turns, user, some)
      end
      left, places[user] = left - some, i + 1
      if i == #queues then Turns.leave(waiting, user) end
    end
  end
  for ready, queues in pairs(asleep) do run_many(queues, 'ZREM', ready) end
  for ready, queues in pairs(later) do run_many(queues, 'ZADD', ready) end
  return left, looks
end

local function hand_out()
  local entries, deadlines, serial, n = {}, {}, 0, 0
  local prefix, deadline = epoch .. '.' .. request .. '.', text_of(now + visibility)
  for _, of in ipairs(taken) do
    local row, best = of[1], of[2]
    local r = row.parent or row
    local names = ' ' .. row.queue .. ' ' .. (r[MORE].domain or r.queue) .. ' '
    put_queue(r, row.queue, #best / 2)
    for i = 1, #best, 2 do
      serial = serial + 1
      local token, member, score = prefix .. serial, best[i], best[i + 1]
      entries[n + 1], entries[n + 2] = token, score .. names .. member
      deadlines[n + 1], deadlines[n + 2] = deadline, token
      n = n + 2
      put_batch(token, score, member, listed_origin(r.queue, member))
    end
  end
  run_many(entries, 'HSET', ctx.prefix .. 'u')
  run_many(deadlines, 'ZADD', ctx.prefix .. 'x')
  call('HSET', ctx.meta_key, 'request', request)
end

-- '' and the users whose URLs wait in queues;
-- '' not where the crawl's budgets are used up.
local function users_here()
  local found = meta().users ~= 0 and call('HKEYS', ctx.prefix .. 'users') or {}
  if own_left > 0 then table.insert(found, 1, '') end
  return found
end

local function take_all(users, left)
  local looks, turns = left, {}
  taken, got = {}, {}
  if #users > 1 then
    local packed = call('HGET', ctx.meta_key, 'turns')
    if packed then turns = cmsgpack.unpack(packed) end
  end
  for _, boost in ipairs(boosts()) do
    if left <= 0 or looks <= 0 then break end
    left, looks = take_due(boost, users, turns, left, looks)
  end
  if #taken == 0 then return end
  hand_out()
  if #users > 1 and next(turns) then call('HSET', ctx.meta_key, 'turns', cmsgpack.pack(turns)) end
end

-- Put all that is due into its queue. Returns when the next retry is due, when the next scheduled URL is (wall time, ms), and
-- the probes.
local function requeue_all(wall)
  requeue_due('x', true)
  local retry_due, visible = requeue_due('r', false), show_due(wall)
  local probes = Aside.put_all_due_back(default_delay, probe_ms)
  if next(ctx.records) then
    close_queues() -- so that these URLs can be claimed now
    write_totals()
  end
  return retry_due, visible, probes
end

-- Move records of idle queues to their stores. Returns since when the next one has been idle.
local function compact_idle()
  local idle_since = first_of('idle')
  if idle_since and idle_since <= now - IDLE_MS then
    local idle = call('ZRANGEBYSCORE', ctx.prefix .. 'idle', '-inf', now - IDLE_MS, 'LIMIT', 0, 16)
    read_queues(idle)
    for _, queue in ipairs(idle) do compact(queue) end
    idle_since = first_of('idle')
  end
  return idle_since
end

--@call
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
session, epoch, now = ARGV[FenceArgs.session], ARGV[FenceArgs.epoch], tonumber(ARGV[FenceArgs.now_ms])
request, per_queue, ahead = a[ClaimArgs.request_id], a[ClaimArgs.per_queue_max], a[ClaimArgs.ahead_ms]
visibility, default_delay, out_max = a[ClaimArgs.visibility_ms], a[ClaimArgs.default_delay_ms], a[ClaimArgs.out_max]
pages_max, bytes_max, lead = a[ClaimArgs.pages_max], a[ClaimArgs.bytes_max], a[ClaimArgs.lead_ms]
probe_ms, own_left = a[ClaimArgs.probe_ms], a[ClaimArgs.own_max]
for i = 1, #a[ClaimArgs.weights], 2 do ctx.weights[a[ClaimArgs.weights][i]] = a[ClaimArgs.weights][i + 1] end
if not fence(ARGV) then return {'FENCED'} end
if meta().engine ~= a[ClaimArgs.engine_run] then return {'RECOVER'} end
now, hold, has_spilled, batch = meta().clock, meta().hold, meta().spilled > 0, {}
local retry_due, visible, probes = requeue_all(a[ClaimArgs.at_ms])
local idle_since = compact_idle()
local users = users_here()
if meta().request == request then repeat_batch() else take_all(users, a[ClaimArgs.urls_max]) end

write_queues()
write_totals()
write_seeds()

local fetch = math.min(retry_due or math.huge, first_of('aside') or math.huge)
if visible then fetch = math.min(fetch, math.max(0, now + visible - a[ClaimArgs.at_ms])) end
local waits, n = {}, 0
for _, boost in ipairs(boosts()) do
  for _, user in ipairs(users) do
    local due = first_in(ready_at(boost, user))
    due = due and math.max(0, due - lead)
    fetch = math.min(fetch, due or math.huge)
    if meta().boosts or #users > 1 or users[1] ~= '' then
      waits[n + 1], waits[n + 2], waits[n + 3], n = boost, user, string.format('%d', due or -1), n + 3
    end
  end
end
local short = has_spilled and call('ZRANGE', ctx.prefix .. 'short', 0, 63) or {}
if #short > 0 then fetch = math.min(fetch, now + SHORT_MS) end -- report them until they are back
local soonest = math.min(fetch, first_of('x') or math.huge, idle_since and idle_since + IDLE_MS or math.huge)
local function time_of(at) return at == math.huge and '-1' or string.format('%d', at) end
return {'OK', time_of(soonest), batch, call('HGETALL', ctx.prefix .. 'k'), short, waits, probes, time_of(fetch)}
