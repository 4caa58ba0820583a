#!lua flags=allow-oom
-- purge: drop waiting or deferred URLs of a queue for an operator: they end as refused, and stay seen. Without a fence; URLs
-- that were claimed or taken out meanwhile are skipped. Idempotent.
-- KEYS  meta
-- ARGV  PurgeArgs; at most 128 URLs. row: reason of a row of deferred URLs, '@USER' for the row of a user, '!ORIGIN' for that of
--       an origin, '' for the queue's own blocks, '*' for retries, '@' for scheduled URLs
-- returns the number of dropped URLs
local r, row_reason, ended, n = record_of(ARGV[PurgeArgs.queue]), ARGV[PurgeArgs.row], {}, 0
local in_blocks = row_reason ~= '*' and row_reason ~= '@'
local is_user = in_blocks and string.sub(row_reason, 1, 1) == '@'
local origin = in_blocks and string.match(row_reason, '^!(.*)$') or nil
local is_pending, from = is_user or origin or row_reason == '' or not in_blocks, r
if origin then
  from = Aside.row_of(r.queue, origin)
elseif is_user then
  from = Users.place_in(r, string.sub(row_reason, 2))
elseif not is_pending then
  from = row_of(r.queue, row_reason)
end

local function take_out(name, block)
  if row_reason == '*' then
    if call('ZREM', ctx.prefix .. 'r', name) == 0 then return false end
    call('HDEL', ctx.prefix .. 'u', name)
    leave(State.RETRYING, r)
    return true
  end
  if row_reason == '@' then return unschedule(r, name) end
  if not remove_url(from.queue, block, name) then return false end
  add_urls(from, -1)
  if is_pending and not origin then note_runs(r, {name}, 1, -1) end
  return true
end

for _, a in ipairs(cmsgpack.unpack(ARGV[PurgeArgs.urls])) do
  if take_out(a[PurgeItem.name], a[PurgeItem.block]) then
    local run = run_named(a[PurgeItem.seed])
    ended[run], n = ended[run] or {}, n + 1
    table.insert(ended[run], a[PurgeItem.fingerprint])
    enter(State.REFUSED, r, {seed = a[PurgeItem.seed], reason = ARGV[PurgeArgs.reason]})
  end
end
if n == 0 then return 0 end
if origin then
  Aside.leave(r, n)
  promote(from)
  if from[N] == 0 then Aside.schedule(r.queue, origin, nil) end
elseif not is_pending then
  note_released(r.queue, row_reason, n) -- pending again, and done below
elseif in_blocks and Stops.deferring(r, from.user or '') then
  note_released(r.queue, r[MORE].stop, n)
end
if in_blocks and not origin and not promote(from) then
  leave_ready(from)
  look_ahead(from.queue, 0)
end
for run, fingerprints in pairs(ended) do forget(run, fingerprints, true) end
settle_idle(r)
close_call()
return n
