module {{name}}

go 1.24

require guild v0.0.0

replace guild => ./sdk
