module guild

go 1.24
