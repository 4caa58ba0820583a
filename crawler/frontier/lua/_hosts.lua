-- A domain's budget of hosts: so many are taken in, URLs of further ones are parked. Shelf n: domain -> how many of its hosts
-- were taken in, and 'domain label' for each of those; of 'www.example.com' the label is 'www', '@' for the domain itself.
local taken_labels -- 'domain label' -> true, of those that were found or taken in
--@each taken_labels = {}

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
  local name = domain .. ' ' .. label_of(domain, host)
  if not taken_labels[name] and not shelf_get('n', name) then
    local n = tonumber(shelf_get('n', domain) or nil) or 0
    if n >= hosts_max and not is_given then return false end
    shelf_put('n', name, '')
    shelf_put('n', domain, n + 1)
  end
  taken_labels[name] = true
  return true
end
