-- Budgets of hosts. One of each domain: so many are taken in, URLs of further ones are parked. Shelf n: domain -> its hosts
-- that were taken in, with a space around each; of 'www.example.com' the part 'www', '@' for the domain itself.
-- And one of the whole crawl. Whether it has room for another host, no script knows: who adds a URL says so. Hosts that were
-- taken in are the members of a seen-set of their own, shosts:<bucket>. The URLs of another one are parked in a row of that
-- host alone, QUEUE|crawl:hosts:HOST: when the host is taken in, all of the row is released.
local HOSTS_RUN = 'hosts' -- in place of a run's number
local hosts_of
--@each hosts_of = {}

-- The host of an item of add: its origin says it, or the letter of its member.
local function host_in(queue, member, origin)
  if origin ~= '' then return (string.gsub(string.match(origin, '//(.*)$'), ':%d+$', '')) end
  local letter = string.sub(member, 1, 1)
  return (letter == '#' or letter == '$') and 'www.' .. queue or queue
end

local function label_of(domain, host)
  if host == domain then return '@' end
  local behind = '.' .. domain
  return string.sub(host, -#behind) == behind and string.sub(host, 1, -#behind - 1) or host
end

-- Does its domain take this host in, by now or from now on? Those of URLs that people gave always are.
local function takes_host(domain, host, hosts_max, is_given)
  local label, list = label_of(domain, host), hosts_of[domain] or shelf_get('n', domain) or ' '
  hosts_of[domain] = list
  if string.find(list, ' ' .. label .. ' ', 1, true) then return true end
  local _, n = string.gsub(list, '%S+', '')
  if n >= hosts_max and not is_given then return false end
  hosts_of[domain] = list .. label .. ' '
  shelf_put('n', domain, hosts_of[domain])
  return true
end

-- A command on the set in which a host is a member, and on the member: 52 bits of the host's digest.
local function as_member(command, host)
  local number = string.format('%d', tonumber(string.sub(redis.sha1hex(host), 1, 13), 16))
  local buckets = buckets_of(HOSTS_RUN)
  return call(command, P .. 's' .. HOSTS_RUN .. ':' .. bucket_of(number, buckets, level_of(buckets)), number) == 1
end

local function take_in(host)
  if as_member('SADD', host) then count(total, 'seen' .. HOSTS_RUN, 1) end
end

-- Why the budget of the whole crawl parks a URL of this host; '' when it does not.
local function crawl_reason(host, may_take_in)
  if may_take_in then take_in(host) end
  return (may_take_in or as_member('SISMEMBER', host)) and '' or CRAWL_HOSTS .. ':' .. host
end

-- The totals, and what follows from them for hosts. The last that a script does.
local function write_hosts()
  local totals = write_totals()
  local hosts = totals['seen' .. HOSTS_RUN]
  if hosts then seen_grow(HOSTS_RUN, hosts) end
  return totals
end
