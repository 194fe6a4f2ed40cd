go version                                              # 1.24 or newer
