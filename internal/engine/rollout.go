package engine

func (e *Engine) rolloutGuarded(*pool, string)   {}
func (e *Engine) rolloutOverruled(*pool, string) {}
