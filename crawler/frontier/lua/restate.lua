#!lua
-- restate: move URLs to the state that disks, or another crawl, say they are in: for a rebuild, a repair, and for seeds whose
-- pages another crawl has. Without a fence: for the former no session works. Idempotent: a URL that is not where it is said to
-- be stays. Takes the entries of these URLs out of the log: a rebuild may have moved their records, and the next owner would
-- write the old places into an index. Refused when out of memory.
-- KEYS  meta
-- ARGV  RestateArgs
-- returns digits: for each URL 1 it was moved, 0 it was not there
local ended

-- n: 1, or -1 to take the page back.
local function book_page(r, item, n)
  local class, bytes, items = item[RestateItem.status_class], item[RestateItem.bytes], item[RestateItem.items]
  local sums = {['s' .. class] = n, items = items > 0 and n * items or nil}
  for total, missing in pairs(item[RestateItem.lost]) do
    sums[total] = n * missing
    if n > 0 then Losses.keep(total, item[RestateItem.url]) end
  end
  for total, told in pairs(item[RestateItem.told]) do sums[total] = n * told end
  for name, sum in pairs(sums) do
    count(ctx.total, name, sum)
    count_in(r, name, sum)
  end
  Requisites.count_bytes(r, class, n * bytes)
  if class ~= Requisites.CLASS then add_to(r, FETCH_MS, n * item[RestateItem.fetch_ms]) end
  count_page(r, item[RestateItem.seed], class, bytes, items, n)
  r.has_pages = r.has_pages or n > 0
end

-- n: 1, or -1 to forget it.
local function meet_one(r, item, of, n)
  local seed = item[RestateItem.seed]
  ctx.has_runs = is_run(of)
  meet(r, item[RestateItem.domain], n)
  if item[RestateItem.status_class] == Requisites.CLASS then Requisites.meet(r, n) end
  count(ctx.total, 'added', n)
  count(ctx.total, 'seen' .. of, n)
  count_seed(seed, ADDED, n)
end

local function take_delivery(r, token)
  if call('HDEL', ctx.prefix .. 'u', token) == 0 then return false end
  if call('ZREM', ctx.prefix .. 'r', token) == 1 then
    leave(State.RETRYING, r)
  else
    call('ZREM', ctx.prefix .. 'x', token)
    leave(State.CLAIMED, r)
    settle(r, 0, -1)
  end
  return true
end

local function take_waiting(r, row, block, member, origin)
  if not remove_url(row.queue, block, member) then return false end
  add_urls(row, -1)
  if origin then
    promote(row)
    Aside.leave(r, 1)
    if row[N] == 0 then Aside.schedule(r.queue, origin, nil) end
    return true
  end
  if Stops.deferring(r, row.user or '') then note_released(r.queue, r[MORE].stop, 1) end -- pending again, and done below
  note_runs(r, {member}, 1, -1)
  if not promote(row) then
    leave_ready(row)
    look_ahead(row.queue, 0)
  end
  return true
end

-- Take a pending URL out of its place.
local function take_pending(r, row, item, origin)
  local place, name = item[RestateItem.place], item[RestateItem.name]
  if place == '*' then return take_delivery(r, name) end
  if place == '@' then return unschedule(r, name) end
  return take_waiting(r, row, place == '.' and '' or place, name, origin)
end

local function move(item)
  local fp, seed, place = item[RestateItem.fingerprint], item[RestateItem.seed], item[RestateItem.place]
  local queue, origin = Aside.split(item[RestateItem.row])
  local row = queue and Aside.row_of(queue, origin) or place_named(item[RestateItem.row])
  local r, of = queue and record_of(queue) or row.parent or row, run_named(seed)
  local seen, to = seen_set(of), State[item[RestateItem.to]]
  if item[RestateItem.to] == 'UNSEEN' then
    if not is_seen(seen, fp) then return false end
    unsee(seen, fp)
    book_page(r, item, -1)
    leave(State.COMMITTED, r, {seed = seed})
    meet_one(r, item, of, -1)
    return true
  end
  if place == '' then
    if is_closed(of) or not see(seen, fp) then return false end
    meet_one(r, item, of, 1)
  else
    if not take_pending(r, row, item, origin) then return false end
    ended[of] = ended[of] or {}
    table.insert(ended[of], fp)
  end
  enter(to, r, {seed = seed, reason = item[RestateItem.reason]})
  if to == State.COMMITTED then book_page(r, item, 1) end
  return true
end

--@call
local digits, logged = {}, {}
ended = {}
keep_hash_key(ARGV[RestateArgs.hash_key])
for i, item in ipairs(cmsgpack.unpack(ARGV[RestateArgs.urls])) do
  digits[i], logged[i] = move(item) and '1' or '0', item[RestateItem.fingerprint] .. ':1'
end
for of, fingerprints in pairs(ended) do forget(of, fingerprints, true) end
close_call()
run_many(logged, 'HDEL', ctx.prefix .. 'l')
return table.concat(digits)
