#!lua flags=allow-oom
-- admit: URLs that are parked for a domain's budget of hosts go into their queue, if it takes their hosts in now; or into a row
-- of their host, as long as a budget of the whole crawl has not taken that in. Needs no fence.
-- Idempotent.
-- KEYS  meta
-- ARGV  default delay (ms), hint channel prefix, session of the caller, msgpack {queue, domain, budget of hosts (0: none),
--       list of {block of the row ('' for the head), member, host}: at most 128, 1 if the whole crawl has a budget of hosts}
-- returns {woken queues, how many URLs}
local a, entries, moved, n = cmsgpack.unpack(ARGV[4]), {}, {}, 0
local queue, domain, hosts_max = a[1], a[2], a[3] > 0 and a[3] or math.huge
local row = row_of(queue, HOSTS)

-- A block may have become the head since it was read.
local function take_out(key, member, into)
  local score = call('ZSCORE', key, member)
  if not score or call('ZREM', key, member) == 0 then return false end
  into[#into + 1], into[#into + 2] = text_of(tonumber(score)), member
  add_to(row, N, -1)
  n = n + 1
  return true
end

-- Where the URLs of a host go that its domain takes in.
local function place_of_host(host)
  local reason = a[5] == 1 and crawl_reason(host, false) or ''
  if reason == '' then return entries end
  moved[reason] = moved[reason] or {}
  return moved[reason]
end

for _, one in ipairs(a[4]) do
  local head = head_of(row.queue)
  local key = one[1] ~= '' and block_of(row.queue, one[1]) or head
  if hosts_max == math.huge or takes_host(domain, one[3], hosts_max, false) then
    local into = place_of_host(one[3])
    if not take_out(key, one[2], into) then take_out(head, one[2], into) end
  end
end
if n == 0 then return {0, 0} end
promote(row)
note_released(queue, HOSTS, n)
for reason, some in pairs(moved) do
  if #some > 0 then park(queue, reason, some) end
end
if #entries > 0 then put_pending(record_of(queue), entries, tonumber(ARGV[1])) end
local woken = close_queues()
write_totals()
hint(woken, ARGV[2], ARGV[3])
return {woken, n}
