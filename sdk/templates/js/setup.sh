npm install                                             # once
