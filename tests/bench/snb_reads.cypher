// Named queries in Cypher: each begins after a line with its name. They return what those of `snb_reads.gq` return.

// is1
MATCH (p:Person {nr: $id})-[:LivesIn]->(c:City)
RETURN p.firstName, p.lastName, p.birthday, p.locationIP, p.browserUsed, c.nr, p.gender, p.creationDate

// is2
MATCH (p:Person {nr: $id})<-[:HasCreator]-(m:Message)-[:RootPost]->(o:Message)-[:HasCreator]->(a:Person)
RETURN m.nr AS n, m.content, m.imageFile, m.creationDate AS made, o.nr, a.nr, a.firstName, a.lastName
ORDER BY made DESC, n LIMIT 10

// is3
MATCH (p:Person {nr: $id})-[k:Knows]-(f:Person)
RETURN f.nr AS n, f.firstName, f.lastName, k.creationDate AS made
ORDER BY made DESC, n

// is4
MATCH (m:Message {nr: $id})
RETURN m.creationDate, m.content, m.imageFile

// is5
MATCH (m:Message {nr: $id})-[:HasCreator]->(p:Person)
RETURN p.nr, p.firstName, p.lastName

// is6
MATCH (m:Message {nr: $id})-[:RootPost]->(o:Message)<-[:ContainerOf]-(f:Forum)-[:HasModerator]->(p:Person)
RETURN f.nr, f.title, p.nr, p.firstName, p.lastName

// is7
MATCH (m:Message {nr: $id})-[:HasCreator]->(a:Person)
WITH m, a
MATCH (m)<-[:ReplyOf]-(c:Message)-[:HasCreator]->(p:Person)
RETURN c.nr AS n, c.content, c.creationDate AS made, p.nr AS author, p.firstName, p.lastName, EXISTS { MATCH (a)-[:Knows]-(p) }
ORDER BY made DESC, author, n

// ic2
MATCH (p:Person {nr: $id})-[:Knows]-(f:Person)<-[:HasCreator]-(m:Message) WHERE m.creationDate <= $max
RETURN f.nr, f.firstName, f.lastName, m.nr AS n, m.content, m.imageFile, m.creationDate AS made
ORDER BY made DESC, n LIMIT 20

// ic4
MATCH (p:Person {nr: $id})-[:Knows]-(f:Person)<-[:HasCreator]-(m:Message)-[:HasTag]->(t:Tag) WHERE m.post AND m.creationDate < $until
WITH DISTINCT t, m
WITH t, sum(CASE WHEN m.creationDate >= $since THEN 1 ELSE 0 END) AS n, sum(CASE WHEN m.creationDate < $since THEN 1 ELSE 0 END) AS old WHERE n > 0 AND old = 0
RETURN t.name AS name, n
ORDER BY n DESC, name LIMIT 10

// ic5
MATCH (p:Person {nr: $id})-[:Knows*1..2]-(f:Person) WHERE f.nr <> $id
WITH DISTINCT f
MATCH (f)<-[h:HasMember]-(o:Forum) WHERE h.joinDate > $since
WITH f, o
MATCH (o)-[:ContainerOf]->(m:Message)-[:HasCreator]->(f)
RETURN o.title, o.nr AS forum, count(m) AS n
ORDER BY n DESC, forum LIMIT 20

// ic6
MATCH (p:Person {nr: $id})-[:Knows*1..2]-(f:Person) WHERE f.nr <> $id
WITH DISTINCT f
MATCH (f)<-[:HasCreator]-(m:Message)-[:HasTag]->(k:Tag) WHERE k.name = $tag AND m.post
WITH m
MATCH (m)-[:HasTag]->(t:Tag) WHERE t.name <> $tag
RETURN t.name AS name, count(m) AS n
ORDER BY n DESC, name LIMIT 10

// ic8
MATCH (p:Person {nr: $id})<-[:HasCreator]-(m:Message)<-[:ReplyOf]-(c:Message)-[:HasCreator]->(a:Person)
RETURN a.nr, a.firstName, a.lastName, c.creationDate AS made, c.nr AS n, c.content
ORDER BY made DESC, n LIMIT 20

// ic9
MATCH (p:Person {nr: $id})-[:Knows*1..2]-(f:Person) WHERE f.nr <> $id
WITH DISTINCT f
MATCH (f)<-[:HasCreator]-(m:Message) WHERE m.creationDate < $max
RETURN f.nr, f.firstName, f.lastName, m.nr AS n, m.content, m.imageFile, m.creationDate AS made
ORDER BY made DESC, n LIMIT 20

// ic11
MATCH (p:Person {nr: $id})-[:Knows*1..2]-(f:Person) WHERE f.nr <> $id
WITH DISTINCT f
MATCH (f)-[w:WorkAt]->(c:Company)-[:CompanyIn]->(l:Country) WHERE w.workFrom < $year AND l.name = $country
RETURN f.nr AS n, f.firstName, f.lastName, c.name AS company, w.workFrom AS since
ORDER BY since, n, company DESC LIMIT 10
