#!lua
-- withdraw: mark pending URLs whose commits are on disk as done, and count what their index lines have. For the rebuild of a
-- crawl; without a fence, because no session works then. Idempotent.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, or row of a user or of an origin, block ('' for the head), '*' or '@', member or
--       token, status class, bytes, fetch (ms), seed or run, items, lost, url}: '*' is a claim or a retry, named by its token,
--       '@' a scheduled URL
-- returns how many of them were pending
local done, ended = {}, {}

local function take_delivery(r, token)
  if call('HDEL', ctx.prefix .. 'u', token) == 0 then return false end
  if call('ZREM', ctx.prefix .. 'r', token) == 1 then
    add_to(r, RETRYING, -1)
  else
    call('ZREM', ctx.prefix .. 'x', token)
    settle(r, 1, 0, -1)
  end
  return true
end

local function take_queued(r, from, block, member, origin)
  local head = head_of(from.queue) -- the block may have become the head meanwhile
  if call('ZREM', block_of(from.queue, block), member) + call('ZREM', head, member) == 0 then return false end
  add_urls(from, -1)
  if origin then
    promote(from)
    Aside.count(r, -1)
    if from[N] == 0 then Aside.schedule(r.queue, origin, nil) end
    return true
  end
  if Stops.deferring(r, from.user or '') then note_released(r.queue, r[MORE].stop, 1) end -- pending again, and done below
  note_runs(r, {member}, 1, -1)
  if not promote(from) then
    leave_ready(from)
    look_ahead(from.queue, 0)
  end
  return true
end

for _, a in ipairs(cmsgpack.unpack(ARGV[2])) do
  local queue, origin = Aside.split(a[2])
  local from, was_pending = queue and Aside.row_of(queue, origin) or place_named(a[2]), false
  local r = queue and record_of(queue) or from.parent or from
  if a[3] == '*' then was_pending = take_delivery(r, a[4])
  elseif a[3] == '@' then was_pending = unschedule(r, a[4])
  else was_pending = take_queued(r, from, a[3], a[4], origin) end
  if was_pending then
    done[#done + 1] = {queue = r.queue, class = a[5], bytes = a[6], fetch_ms = a[7], items = a[9], lost = a[10], url = a[11]}
    local run = run_named(a[8], ARGV[1])
    ended[run] = ended[run] or {}
    table.insert(ended[run], a[1])
    count_seed(a[8], DONE, 1)
    count_page(r, a[8], a[5], a[6], a[9])
  end
end
if #done > 0 then
  count_done(done, 1)
  for run, fingerprints in pairs(ended) do forget(run, fingerprints, true) end
  close_call()
end
return #done
