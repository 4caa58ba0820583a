#!lua flags=allow-oom
-- admit_hosts: move URLs that a domain's quota of hosts deferred into their queue, if it admits their hosts now. Without a
-- fence. Idempotent.
-- KEYS  meta
-- ARGV  default delay (ms), hint channel prefix, session of the caller, msgpack {queue, domain, quota of hosts,
--       list of {block of the row ('' for the head), member, host}: at most 128}
-- returns {woken queues, number of URLs}
local a, entries = cmsgpack.unpack(ARGV[4]), {}
local queue, domain, hosts_max = a[1], a[2], a[3]
local row = row_of(queue, HOSTS)

-- A block may have become the head since the caller read it.
local function take_out(key, member)
  local score = call('ZSCORE', key, member)
  if not score or call('ZREM', key, member) == 0 then return false end
  push(entries, text_of(tonumber(score)), member)
  add_to(row, N, -1)
  return true
end

for _, one in ipairs(a[4]) do
  local head = head_of(row.queue)
  local key = one[1] ~= '' and block_of(row.queue, one[1]) or head
  if takes_host(domain, one[3], hosts_max, false) and not take_out(key, one[2]) then take_out(head, one[2]) end
end
local n = #entries / 2
if n == 0 then return {0, 0} end
promote(row)
note_released(queue, HOSTS, n)
put_pending(record_of(queue), '', entries, tonumber(ARGV[1]))
return {close_call(ARGV[2], ARGV[3]), n}
