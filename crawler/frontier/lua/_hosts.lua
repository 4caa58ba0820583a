-- A budget of hosts: so many of a domain are taken in, and URLs of further ones are parked. Shelf n: domain -> its hosts that
-- were taken in, with a space around each; of 'www.example.com' the part 'www', '@' for the domain itself.
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

-- Is this host taken in, by now or from now on? Those of URLs that people gave always are.
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
